/* A driver without a GPU: enough of libcuda for a launch, and a log of what it was told.
   Struct layouts as in cuda.h ("CUlaunchConfig", "CUlaunchAttribute"); argument sizes come from STUB_SIZES. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct { int id; char pad[4]; union { char raw[64]; int number; unsigned dim[3]; } value; } Attribute;
typedef struct {
  unsigned grid[3], block[3], shared;
  void *stream;
  Attribute *attrs;
  unsigned count;
} Config;

static char context_of[2];
static void *stack[16];
static int depth;
static const char *log_path(void) { return getenv("STUB_LOG"); }

#define LOG(...) do { if (log_path()) { FILE *out_ = fopen(log_path(), "a"); fprintf(out_, __VA_ARGS__); fclose(out_); } } while (0)

static int init(unsigned flags) { return (int)flags + atoi(getenv("STUB_INIT") ? getenv("STUB_INIT") : "0"); }
static int version(int *v) { *v = 13000; return 0; }
static int count(int *n) { *n = 2; return 0; }
static int device(int *d, int ordinal) { *d = ordinal; return 0; }
static int name(char *text, int n, int d) { snprintf(text, n, "Stub %d", d); return 0; }
static int attribute(int *v, int kind, int d) { *v = kind == 75 ? 9 : kind == 76 ? d : 0; return 0; }
static int retain(void **c, int d) { *c = &context_of[d]; LOG("retain %d\n", d); return 0; }
static int push(void *c) { stack[depth++] = c; LOG("push %d\n", (int)((char *)c - context_of)); return 0; }
static int pop(void **c) { void *top = stack[--depth]; if (c) *c = top; LOG("pop\n"); return 0; }
static int current(void **c) { *c = depth ? stack[depth - 1] : 0; return 0; }
static int load(void **m, const void *image) { *m = (void *)image; LOG("load %.4s\n", (const char *)image); return memcmp(image, "bad!", 4) ? 0 : 209; }
static int function(void **f, void *m, const char *entry) { (void)m; *f = strdup(entry); return 0; }
static int set(void *f, int kind, int v) { LOG("set %s %d %d\n", (char *)f, kind, v); return 0; }
static int allocate(void **p, size_t n) { *p = malloc(n); return 0; }
static int release(void *p) { free(p); return 0; }
static int copy(void *to, const void *from, size_t n) { memcpy(to, from, n); return 0; }
static int synchronize(void *s) { (void)s; LOG("synchronize\n"); return 0; }
static int pointer(void *v, int kind, void *p) { (void)p; *(int *)v = kind == 9 ? 1 : -1; return 0; }
static int message(int code, const char **text) { *text = code == 209 ? "no kernel image" : "something else"; return 0; }

static int launch(const Config *c, void *f, void **params, void **extra) {
  (void)extra;
  if (!log_path()) return 0;
  LOG("launch %s grid %u %u %u block %u %u %u shared %u stream %zu context %d", (char *)f, c->grid[0], c->grid[1],
      c->grid[2], c->block[0], c->block[1], c->block[2], c->shared, (size_t)c->stream,
      depth ? (int)((char *)stack[depth - 1] - context_of) : -1);
  for (unsigned i = 0; i < c->count; i++) {
    const Attribute *a = &c->attrs[i];
    LOG(" attribute %d %u %u %u", a->id, a->value.dim[0], a->id == 4 ? a->value.dim[1] : 0, a->id == 4 ? a->value.dim[2] : 0);
  }
  const char *sizes = getenv("STUB_SIZES");
  for (int i = 0; sizes && sizes[i]; i++) {
    long long v = 0;
    memcpy(&v, params[i], (size_t)(sizes[i] - '0'));
    LOG(" %lld", sizes[i] == '4' ? (long long)(int)v : v);
  }
  LOG("\n");
  return 0;
}

static int absent(void) { return 801; }
#define ENTRY(symbol, f) {symbol, (void *)f}
static const struct { const char *symbol; void *f; } table[] = {
  ENTRY("cuInit", init), ENTRY("cuDriverGetVersion", version), ENTRY("cuDeviceGetCount", count), ENTRY("cuDeviceGet", device),
  ENTRY("cuDeviceGetName", name), ENTRY("cuDeviceGetAttribute", attribute), ENTRY("cuDevicePrimaryCtxRetain", retain),
  ENTRY("cuCtxPushCurrent", push), ENTRY("cuCtxPopCurrent", pop), ENTRY("cuCtxGetCurrent", current),
  ENTRY("cuModuleLoadData", load), ENTRY("cuModuleGetFunction", function), ENTRY("cuFuncSetAttribute", set),
  ENTRY("cuMemAlloc", allocate), ENTRY("cuMemFree", release), ENTRY("cuMemcpyHtoD", copy), ENTRY("cuMemcpyDtoH", copy),
  ENTRY("cuStreamSynchronize", synchronize), ENTRY("cuPointerGetAttribute", pointer), ENTRY("cuGetErrorString", message),
  ENTRY("cuLaunchKernelEx", launch),
};

int cuGetProcAddress_v2(const char *symbol, void **f, int v, unsigned long long flags, int *status) {
  (void)v; (void)flags;
  *f = (void *)absent;
  for (size_t i = 0; i < sizeof table / sizeof *table; i++)
    if (!strcmp(symbol, table[i].symbol)) *f = table[i].f;
  if (status) *status = 0;
  return 0;
}
int cuGetProcAddress(const char *symbol, void **f, int v, unsigned long long flags) { return cuGetProcAddress_v2(symbol, f, v, flags, 0); }
int cuInit(unsigned flags) { return init(flags); }
