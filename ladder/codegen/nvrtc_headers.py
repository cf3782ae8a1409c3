"""Text that lets NVRTC compile what the code generator emits, with pip packages alone.

The emitted prelude asks NVRTC for ``<cuda/std/cstdint>`` and ``<cuda/std/type_traits>``: a package more (CCCL), and about
a second of parsing for ten names. The two headers below hold those names; NVRTC takes them by name, so the kernel's text
stays as emitted. Kernel arguments of type ``CUtensorMap`` come from ``<cuda.h>``, which NVRTC cannot read: the type is
declared as ``cuda.h`` of CUDA 13 has it, aligned to 128 bytes, so that argument offsets equal those of an nvcc build.
"""

from __future__ import annotations

TENSOR_MAP = """\
struct alignas(128) CUtensorMap_st { unsigned long long opaque[16]; };
typedef struct CUtensorMap_st CUtensorMap;
"""

_CSTDINT = """\
#pragma once
namespace cuda { namespace std {
typedef signed char int8_t; typedef unsigned char uint8_t;
typedef short int16_t; typedef unsigned short uint16_t;
typedef int int32_t; typedef unsigned int uint32_t;
typedef long int64_t; typedef unsigned long uint64_t;
} }
"""

_TRAITS = """\
#pragma once
namespace cuda { namespace std {
template <bool V> struct bool_constant { enum : bool { value = V }; };
template <class A, class B> struct is_same : bool_constant<false> {};
template <class A> struct is_same<A, A> : bool_constant<true> {};
template <class A, class B> inline constexpr bool is_same_v = is_same<A, B>::value;
template <class A, class... B> struct is_any : bool_constant<(is_same_v<A, B> || ...)> {};
template <class A> struct is_unsigned : is_any<A, bool, unsigned char, unsigned short, unsigned int,
                                               unsigned long, unsigned long long> {};
template <class A> struct is_floating_point : is_any<A, float, double> {};
template <class A> struct is_integral : bool_constant<is_unsigned<A>::value ||
    is_any<A, char, signed char, short, int, long, long long>::value> {};
template <class A> struct is_signed : bool_constant<is_floating_point<A>::value ||
    (is_integral<A>::value && !is_unsigned<A>::value)> {};
template <bool C, class T = void> struct enable_if {};
template <class T> struct enable_if<true, T> { typedef T type; };
template <bool C, class T, class F> struct conditional { typedef T type; };
template <class T, class F> struct conditional<false, T, F> { typedef F type; };
} }
"""

#: name in an ``#include`` -> text
SHIM: dict[str, str] = {"cuda/std/cstdint": _CSTDINT, "cuda/std/type_traits": _TRAITS}


def with_tensor_map(source: str) -> str:
    """Return ``source``, preceded by the declaration of ``CUtensorMap`` when it names that type."""
    return f"{TENSOR_MAP}#line 1\n{source}" if "CUtensorMap" in source else source
