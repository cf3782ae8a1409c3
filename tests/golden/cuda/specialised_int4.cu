extern "C" __global__ void __launch_bounds__(160, 1) ladder_specialised_float16_int4_kernel(ushort* __restrict__ bias_ptr, ushort* __restrict__ scales_ptr, float* __restrict__ unit_ptr, uint* __restrict__ weight_ptr, const __grid_constant__ CUtensorMap x_map, ushort* __restrict__ y_ptr, ushort* __restrict__ zeros_ptr, int m, int y_pieces, int64_t y_stride_m) {
  int cse_v1 = (((int)threadIdx.x) >> 5);
  int warp_id_in_cta = __shfl_sync((uint)4294967295, cse_v1, 0, 32);
  int v = ((int)blockIdx.x);
  int v_1 = ((int)blockIdx.y);
  int v_2 = ((int)tvm_builtin_cluster_ctaid_x());
  int v_3 = ((int)threadIdx.x);
  ((int)blockIdx.x);
  ((int)blockIdx.y);
  ((int)tvm_builtin_cluster_ctaid_x());
  ((int)threadIdx.x);
  int cse_v2 = (((int)blockIdx.x) >> 1);
  int block_n = cse_v2;
  int cse_v3 = (((int)threadIdx.x) & 31);
  int lane = cse_v3;
  int warp = cse_v1;
  int cse_v4 = (((int)threadIdx.x) & 127);
  int warp_n = (cse_v4 >> 5);
  int ring_thread = cse_v4;
  int first_tile = (cse_v2 * 4);
  int cse_v5 = (((int)blockIdx.y) * 16);
  int first_token = cse_v5;
  extern __shared__ __align__(1024) uchar arena_ptr[];
  uint arena_address = tvm_builtin_cuda_cvta_generic_to_shared((&(arena_ptr[0])));
  int cse_v6 = (((int)tvm_builtin_cluster_ctaid_x()) * 2);
  int first_block = cse_v6;
  int cse_v7 = ((2 < ((((((int)tvm_builtin_cluster_ctaid_x()) * 5) + 5) >> 1) - (((int)tvm_builtin_cluster_ctaid_x()) * 2))) ? 3 : 2);
  int cse_v19 = ((((((int)tvm_builtin_cluster_ctaid_x()) * 5) + 5) >> 1) - cse_v6);
  int turns = cse_v7;
  int cse_v14 = ((m + 7) >> 3);
  int cse_v17 = min(cse_v14, 2);
  int box_rows = (cse_v17 * 8);
  uint cse_v8 = ((uint)((int)threadIdx.x));
  uint lane_address = (ladder_prmt((cse_v8 * (uint)8), (uint)0, (uint)17472) >> (uint)1);
  alignas(64) uint zero_ptr[1];
  zero_ptr[0] = ((cse_v8 + ((uint)m)) >> (uint)31);
  alignas(64) uint held_ptr[1];
  held_ptr[0] = zero_ptr[0];
  if (((int)threadIdx.x) == 0) {
    tvm_builtin_ptx_mbarrier_init_init_shared_b64((arena_address + (uint)30720), (uint)1);
    tvm_builtin_ptx_mbarrier_init_init_shared_b64((arena_address + (uint)30744), (uint)4);
    tvm_builtin_ptx_mbarrier_init_init_shared_b64((arena_address + (uint)30728), (uint)1);
    tvm_builtin_ptx_mbarrier_init_init_shared_b64((arena_address + (uint)30752), (uint)4);
    tvm_builtin_ptx_mbarrier_init_init_shared_b64((arena_address + (uint)30736), (uint)1);
    tvm_builtin_ptx_mbarrier_init_init_shared_b64((arena_address + (uint)30760), (uint)4);
    tvm_builtin_ptx_fence_proxy_proxy_async_shared__cta();
  }
  alignas(64) uint zeros_ptr_1[4];
  zeros_ptr_1[0] = (uint)0;
  zeros_ptr_1[1] = (uint)0;
  zeros_ptr_1[2] = (uint)0;
  zeros_ptr_1[3] = (uint)0;
  int cse_v9 = (((int)threadIdx.x) * 4);
  if (m < 9) {
    for (int box = 0; box < 6; ++box) {
      if (((cse_v14 * 64) <= ((int)threadIdx.x)) && (((int)threadIdx.x) < 128)) {
        *(uint4*)(((uint*)arena_ptr) + (((((box >> 1) * 2560) + ((box & 1) * 512)) + cse_v9) + 1024)) = *(uint4*)(zeros_ptr_1 + 0);
      }
    }
    tvm_builtin_ptx_fence_proxy_proxy_async_shared__cta();
  }
  tvm_builtin_cuda_cta_sync();
  int cse_v10 = (((int)tvm_builtin_cluster_ctaid_x()) * 2048);
  if (128 <= ((int)threadIdx.x)) {
    if (tvm_builtin_elect_one_sync_op() != (uint)0) {
      tvm_builtin_ptx_prefetch_tensormap(((void*)((unsigned long long)(&(x_map)))));
      alignas(64) int filling_ptr[3];
      filling_ptr[0] = 0;
      filling_ptr[1] = 0;
      filling_ptr[2] = 0;
      for (int load = 0; load < cse_v7; ++load) {
        tvm_builtin_ptx_mbarrier_arrive_expect_tx_arrive_expect_tx_shared_b64((arena_address + ((uint)((filling_ptr[0] * 8) + 30720))), ((uint)((cse_v17 * 2048) + 4352)));
        tvm_builtin_ptx_cp_async_bulk_g2s_cluster_async_bulk_shared__cluster_global_mbarrier__complete_tx__bytes((arena_address + ((uint)(filling_ptr[1] * 128))), (&(weight_ptr[(((cse_v2 * 5120) + cse_v10) + (load * 1024))])), (uint)4096, (arena_address + ((uint)((filling_ptr[0] * 8) + 30720))));
        int cse_v20 = (((cse_v2 * 320) + (((int)tvm_builtin_cluster_ctaid_x()) * 128)) + (load * 64));
        tvm_builtin_ptx_cp_async_bulk_g2s_cluster_async_bulk_shared__cluster_global_mbarrier__complete_tx__bytes((arena_address + ((uint)((filling_ptr[1] * 128) + 8192))), (&(scales_ptr[cse_v20])), (uint)128, (arena_address + ((uint)((filling_ptr[0] * 8) + 30720))));
        tvm_builtin_ptx_cp_async_bulk_g2s_cluster_async_bulk_shared__cluster_global_mbarrier__complete_tx__bytes((arena_address + ((uint)((filling_ptr[1] * 128) + 9216))), (&(zeros_ptr[cse_v20])), (uint)128, (arena_address + ((uint)((filling_ptr[0] * 8) + 30720))));
        int cse_v15 = ((((int)tvm_builtin_cluster_ctaid_x()) * 256) + (load * 128));
        tvm_builtin_ptx_cp_async_bulk_tensor_g2s_cluster_async_bulk_tensor_2d_shared__cluster_global_mbarrier__complete_tx__bytes((arena_address + ((uint)((filling_ptr[1] * 128) + 4096))), ((void*)((unsigned long long)(&(x_map)))), cse_v15, cse_v5, (arena_address + ((uint)((filling_ptr[0] * 8) + 30720))));
        tvm_builtin_ptx_cp_async_bulk_tensor_g2s_cluster_async_bulk_tensor_2d_shared__cluster_global_mbarrier__complete_tx__bytes((arena_address + ((uint)((filling_ptr[1] * 128) + 6144))), ((void*)((unsigned long long)(&(x_map)))), (cse_v15 + 64), cse_v5, (arena_address + ((uint)((filling_ptr[0] * 8) + 30720))));
        filling_ptr[2] = ((filling_ptr[0] == 2) ? (filling_ptr[2] ^ 1) : filling_ptr[2]);
        filling_ptr[1] = ((filling_ptr[0] == 2) ? 0 : (filling_ptr[1] + 80));
        filling_ptr[0] = ((filling_ptr[0] == 2) ? 0 : (filling_ptr[0] + 1));
      }
    }
    tvm_builtin_cuda_warp_sync();
    tvm_builtin_ptx_barrier_cluster_arrive_cluster_arrive_release_aligned();
    tvm_builtin_ptx_barrier_cluster_wait_cluster_wait_acquire_aligned();
    tvm_builtin_ptx_barrier_cluster_arrive_cluster_arrive_release_aligned();
    tvm_builtin_ptx_barrier_cluster_wait_cluster_wait_acquire_aligned();
  }
  if (((int)threadIdx.x) < 128) {
    alignas(64) float acc_ptr[8];
    acc_ptr[0] = 0x0p+0f/*0.000000e+00*/;
    acc_ptr[1] = 0x0p+0f/*0.000000e+00*/;
    acc_ptr[2] = 0x0p+0f/*0.000000e+00*/;
    acc_ptr[3] = 0x0p+0f/*0.000000e+00*/;
    acc_ptr[4] = 0x0p+0f/*0.000000e+00*/;
    acc_ptr[5] = 0x0p+0f/*0.000000e+00*/;
    acc_ptr[6] = 0x0p+0f/*0.000000e+00*/;
    acc_ptr[7] = 0x0p+0f/*0.000000e+00*/;
    alignas(64) int reading_ptr[3];
    reading_ptr[0] = 0;
    reading_ptr[1] = 0;
    reading_ptr[2] = 0;
    alignas(64) int slot_before_ptr[1];
    slot_before_ptr[0] = 0;
    alignas(64) float unit_ptr_1[1];
    unit_ptr_1[0] = unit_ptr[0];
    alignas(64) float unit_of_ptr[1];
    unit_of_ptr[0] = (unit_ptr_1[0] * 0x1p+20f/*1.048576e+06*/);
    alignas(64) float unit_of_ptr_1[1];
    unit_of_ptr_1[0] = (unit_ptr_1[0] * 0x1p+24f/*1.677722e+07*/);
    alignas(64) uint scale_factor_ptr[1];
    alignas(64) uint scale_offset_ptr[1];
    alignas(64) uint scaled_ptr[32];
    for (int turn = 0; turn < cse_v7; ++turn) {
      int first_slot = (reading_ptr[1] * 128);
      uint64_t activations = (((uint64_t)__shfl_sync((uint)4294967295, ((((arena_address + ((uint)(first_slot + 4096))) & (uint)262143) >> (uint)4) | (uint)65536), 0, 32)) | (uint64_t)4611686293305294848ULL);
      tvm_builtin_cuda_mbarrier_wait((&(((uint64_t*)arena_ptr)[(reading_ptr[0] + 3840)])), reading_ptr[2]);
      int cse_v21 = (((cse_v1 * 1024) + (cse_v3 * 16)) + first_slot);
      alignas(64) uint w1_ptr[4];
      tvm_builtin_ptx_ld_vec_shared_v4_b32(w1_ptr[0], w1_ptr[1], w1_ptr[2], w1_ptr[3], (arena_address + ((uint)cse_v21)));
      alignas(64) uint d1_ptr[20];
      alignas(64) uint w2_ptr[4];
      tvm_builtin_ptx_ld_vec_shared_v4_b32(w2_ptr[0], w2_ptr[1], w2_ptr[2], w2_ptr[3], (arena_address + ((uint)(cse_v21 + 512))));
      alignas(64) uint d2_ptr[20];
      alignas(64) uint scales_rows_ptr[1];
      int cse_v16 = ((first_slot >> 2) + (((int)threadIdx.x) >> 2));
      scales_rows_ptr[0] = ((uint*)arena_ptr)[(cse_v16 + 2048)];
      alignas(64) uint zeros_rows_ptr[1];
      zeros_rows_ptr[0] = ((uint*)arena_ptr)[(cse_v16 + 2304)];
      alignas(64) float scale_0_ptr[1];
      scale_0_ptr[0] = ladder_cvt_f32_f16(((ushort)scales_rows_ptr[0]));
      alignas(64) float scale_1_ptr[1];
      scale_1_ptr[0] = ladder_cvt_f32_f16(((ushort)(scales_rows_ptr[0] >> (uint)16)));
      alignas(64) float row_ptr[1];
      row_ptr[0] = (scale_0_ptr[0] * unit_of_ptr[0]);
      alignas(64) float row_ptr_1[1];
      row_ptr_1[0] = (scale_1_ptr[0] * unit_of_ptr_1[0]);
      scale_factor_ptr[0] = ladder_cvt_f16x2_f32(row_ptr_1[0], row_ptr[0]);
      scale_offset_ptr[0] = ladder_fma_f16x2(scale_factor_ptr[0], ladder_fma_f16x2(zeros_rows_ptr[0], (uint)2147581968, (uint)2148040832), (uint)2147516416);
      d1_ptr[1] = (w1_ptr[0] & (uint)15728880);
      d1_ptr[0] = (w1_ptr[0] & (uint)983055);
      d1_ptr[2] = (w1_ptr[0] >> (uint)8);
      d1_ptr[4] = (d1_ptr[2] & (uint)15728880);
      d1_ptr[3] = (d1_ptr[2] & (uint)983055);
      scaled_ptr[0] = ladder_fma_f16x2(d1_ptr[1], ladder_low_twice(scale_factor_ptr[0]), ladder_low_twice(scale_offset_ptr[0]));
      scaled_ptr[1] = ladder_fma_f16x2(d1_ptr[0], ladder_high_twice(scale_factor_ptr[0]), ladder_high_twice(scale_offset_ptr[0]));
      scaled_ptr[2] = ladder_fma_f16x2(d1_ptr[4], ladder_low_twice(scale_factor_ptr[0]), ladder_low_twice(scale_offset_ptr[0]));
      scaled_ptr[3] = ladder_fma_f16x2(d1_ptr[3], ladder_high_twice(scale_factor_ptr[0]), ladder_high_twice(scale_offset_ptr[0]));
      d1_ptr[6] = (w1_ptr[1] & (uint)15728880);
      d1_ptr[5] = (w1_ptr[1] & (uint)983055);
      d1_ptr[7] = (w1_ptr[1] >> (uint)8);
      d1_ptr[9] = (d1_ptr[7] & (uint)15728880);
      d1_ptr[8] = (d1_ptr[7] & (uint)983055);
      scaled_ptr[4] = ladder_fma_f16x2(d1_ptr[6], ladder_low_twice(scale_factor_ptr[0]), ladder_low_twice(scale_offset_ptr[0]));
      scaled_ptr[5] = ladder_fma_f16x2(d1_ptr[5], ladder_high_twice(scale_factor_ptr[0]), ladder_high_twice(scale_offset_ptr[0]));
      scaled_ptr[6] = ladder_fma_f16x2(d1_ptr[9], ladder_low_twice(scale_factor_ptr[0]), ladder_low_twice(scale_offset_ptr[0]));
      scaled_ptr[7] = ladder_fma_f16x2(d1_ptr[8], ladder_high_twice(scale_factor_ptr[0]), ladder_high_twice(scale_offset_ptr[0]));
      d1_ptr[11] = (w1_ptr[2] & (uint)15728880);
      d1_ptr[10] = (w1_ptr[2] & (uint)983055);
      d1_ptr[12] = (w1_ptr[2] >> (uint)8);
      d1_ptr[14] = (d1_ptr[12] & (uint)15728880);
      d1_ptr[13] = (d1_ptr[12] & (uint)983055);
      scaled_ptr[8] = ladder_fma_f16x2(d1_ptr[11], ladder_low_twice(scale_factor_ptr[0]), ladder_low_twice(scale_offset_ptr[0]));
      scaled_ptr[9] = ladder_fma_f16x2(d1_ptr[10], ladder_high_twice(scale_factor_ptr[0]), ladder_high_twice(scale_offset_ptr[0]));
      scaled_ptr[10] = ladder_fma_f16x2(d1_ptr[14], ladder_low_twice(scale_factor_ptr[0]), ladder_low_twice(scale_offset_ptr[0]));
      scaled_ptr[11] = ladder_fma_f16x2(d1_ptr[13], ladder_high_twice(scale_factor_ptr[0]), ladder_high_twice(scale_offset_ptr[0]));
      d1_ptr[16] = (w1_ptr[3] & (uint)15728880);
      d1_ptr[15] = (w1_ptr[3] & (uint)983055);
      d1_ptr[17] = (w1_ptr[3] >> (uint)8);
      d1_ptr[19] = (d1_ptr[17] & (uint)15728880);
      d1_ptr[18] = (d1_ptr[17] & (uint)983055);
      scaled_ptr[12] = ladder_fma_f16x2(d1_ptr[16], ladder_low_twice(scale_factor_ptr[0]), ladder_low_twice(scale_offset_ptr[0]));
      scaled_ptr[13] = ladder_fma_f16x2(d1_ptr[15], ladder_high_twice(scale_factor_ptr[0]), ladder_high_twice(scale_offset_ptr[0]));
      scaled_ptr[14] = ladder_fma_f16x2(d1_ptr[19], ladder_low_twice(scale_factor_ptr[0]), ladder_low_twice(scale_offset_ptr[0]));
      scaled_ptr[15] = ladder_fma_f16x2(d1_ptr[18], ladder_high_twice(scale_factor_ptr[0]), ladder_high_twice(scale_offset_ptr[0]));
      tvm_builtin_ptx_wgmma_fence_fence_sync_aligned();
      tvm_builtin_ptx_wgmma_f16_rs_mma_async_sync_aligned_m64n16k16_f32_f16_f16_1_1_0(acc_ptr, scaled_ptr[0], scaled_ptr[1], scaled_ptr[2], scaled_ptr[3], activations, (bool)1);
      tvm_builtin_ptx_wgmma_f16_rs_mma_async_sync_aligned_m64n16k16_f32_f16_f16_1_1_0(acc_ptr, scaled_ptr[4], scaled_ptr[5], scaled_ptr[6], scaled_ptr[7], (activations + (uint64_t)2ULL), (bool)1);
      tvm_builtin_ptx_wgmma_f16_rs_mma_async_sync_aligned_m64n16k16_f32_f16_f16_1_1_0(acc_ptr, scaled_ptr[8], scaled_ptr[9], scaled_ptr[10], scaled_ptr[11], (activations + (uint64_t)4ULL), (bool)1);
      tvm_builtin_ptx_wgmma_f16_rs_mma_async_sync_aligned_m64n16k16_f32_f16_f16_1_1_0(acc_ptr, scaled_ptr[12], scaled_ptr[13], scaled_ptr[14], scaled_ptr[15], (activations + (uint64_t)6ULL), (bool)1);
      tvm_builtin_ptx_wgmma_commit_group_commit_group_sync_aligned();
      tvm_builtin_ptx_wgmma_wait_group_wait_group_sync_aligned_1();
      tvm_builtin_cuda_warp_sync();
      tvm_builtin_ptx_mbarrier_arrive_nocount_arrive_shared_b64_pred((arena_address + ((uint)((slot_before_ptr[0] * 8) + 30744))), ((uint)((cse_v3 == 0) && (0 < turn))));
      d2_ptr[1] = (w2_ptr[0] & (uint)15728880);
      d2_ptr[0] = (w2_ptr[0] & (uint)983055);
      d2_ptr[2] = (w2_ptr[0] >> (uint)8);
      d2_ptr[4] = (d2_ptr[2] & (uint)15728880);
      d2_ptr[3] = (d2_ptr[2] & (uint)983055);
      scaled_ptr[16] = ladder_fma_f16x2(d2_ptr[1], ladder_low_twice(scale_factor_ptr[0]), ladder_low_twice(scale_offset_ptr[0]));
      scaled_ptr[17] = ladder_fma_f16x2(d2_ptr[0], ladder_high_twice(scale_factor_ptr[0]), ladder_high_twice(scale_offset_ptr[0]));
      scaled_ptr[18] = ladder_fma_f16x2(d2_ptr[4], ladder_low_twice(scale_factor_ptr[0]), ladder_low_twice(scale_offset_ptr[0]));
      scaled_ptr[19] = ladder_fma_f16x2(d2_ptr[3], ladder_high_twice(scale_factor_ptr[0]), ladder_high_twice(scale_offset_ptr[0]));
      d2_ptr[6] = (w2_ptr[1] & (uint)15728880);
      d2_ptr[5] = (w2_ptr[1] & (uint)983055);
      d2_ptr[7] = (w2_ptr[1] >> (uint)8);
      d2_ptr[9] = (d2_ptr[7] & (uint)15728880);
      d2_ptr[8] = (d2_ptr[7] & (uint)983055);
      scaled_ptr[20] = ladder_fma_f16x2(d2_ptr[6], ladder_low_twice(scale_factor_ptr[0]), ladder_low_twice(scale_offset_ptr[0]));
      scaled_ptr[21] = ladder_fma_f16x2(d2_ptr[5], ladder_high_twice(scale_factor_ptr[0]), ladder_high_twice(scale_offset_ptr[0]));
      scaled_ptr[22] = ladder_fma_f16x2(d2_ptr[9], ladder_low_twice(scale_factor_ptr[0]), ladder_low_twice(scale_offset_ptr[0]));
      scaled_ptr[23] = ladder_fma_f16x2(d2_ptr[8], ladder_high_twice(scale_factor_ptr[0]), ladder_high_twice(scale_offset_ptr[0]));
      d2_ptr[11] = (w2_ptr[2] & (uint)15728880);
      d2_ptr[10] = (w2_ptr[2] & (uint)983055);
      d2_ptr[12] = (w2_ptr[2] >> (uint)8);
      d2_ptr[14] = (d2_ptr[12] & (uint)15728880);
      d2_ptr[13] = (d2_ptr[12] & (uint)983055);
      scaled_ptr[24] = ladder_fma_f16x2(d2_ptr[11], ladder_low_twice(scale_factor_ptr[0]), ladder_low_twice(scale_offset_ptr[0]));
      scaled_ptr[25] = ladder_fma_f16x2(d2_ptr[10], ladder_high_twice(scale_factor_ptr[0]), ladder_high_twice(scale_offset_ptr[0]));
      scaled_ptr[26] = ladder_fma_f16x2(d2_ptr[14], ladder_low_twice(scale_factor_ptr[0]), ladder_low_twice(scale_offset_ptr[0]));
      scaled_ptr[27] = ladder_fma_f16x2(d2_ptr[13], ladder_high_twice(scale_factor_ptr[0]), ladder_high_twice(scale_offset_ptr[0]));
      d2_ptr[16] = (w2_ptr[3] & (uint)15728880);
      d2_ptr[15] = (w2_ptr[3] & (uint)983055);
      d2_ptr[17] = (w2_ptr[3] >> (uint)8);
      d2_ptr[19] = (d2_ptr[17] & (uint)15728880);
      d2_ptr[18] = (d2_ptr[17] & (uint)983055);
      scaled_ptr[28] = ladder_fma_f16x2(d2_ptr[16], ladder_low_twice(scale_factor_ptr[0]), ladder_low_twice(scale_offset_ptr[0]));
      scaled_ptr[29] = ladder_fma_f16x2(d2_ptr[15], ladder_high_twice(scale_factor_ptr[0]), ladder_high_twice(scale_offset_ptr[0]));
      scaled_ptr[30] = ladder_fma_f16x2(d2_ptr[19], ladder_low_twice(scale_factor_ptr[0]), ladder_low_twice(scale_offset_ptr[0]));
      scaled_ptr[31] = ladder_fma_f16x2(d2_ptr[18], ladder_high_twice(scale_factor_ptr[0]), ladder_high_twice(scale_offset_ptr[0]));
      tvm_builtin_ptx_wgmma_fence_fence_sync_aligned();
      tvm_builtin_ptx_wgmma_f16_rs_mma_async_sync_aligned_m64n16k16_f32_f16_f16_1_1_0(acc_ptr, scaled_ptr[16], scaled_ptr[17], scaled_ptr[18], scaled_ptr[19], (activations + (uint64_t)128ULL), (bool)1);
      tvm_builtin_ptx_wgmma_f16_rs_mma_async_sync_aligned_m64n16k16_f32_f16_f16_1_1_0(acc_ptr, scaled_ptr[20], scaled_ptr[21], scaled_ptr[22], scaled_ptr[23], (activations + (uint64_t)130ULL), (bool)1);
      tvm_builtin_ptx_wgmma_f16_rs_mma_async_sync_aligned_m64n16k16_f32_f16_f16_1_1_0(acc_ptr, scaled_ptr[24], scaled_ptr[25], scaled_ptr[26], scaled_ptr[27], (activations + (uint64_t)132ULL), (bool)1);
      tvm_builtin_ptx_wgmma_f16_rs_mma_async_sync_aligned_m64n16k16_f32_f16_f16_1_1_0(acc_ptr, scaled_ptr[28], scaled_ptr[29], scaled_ptr[30], scaled_ptr[31], (activations + (uint64_t)134ULL), (bool)1);
      tvm_builtin_ptx_wgmma_commit_group_commit_group_sync_aligned();
      tvm_builtin_ptx_wgmma_wait_group_wait_group_sync_aligned_1();
      slot_before_ptr[0] = reading_ptr[0];
      reading_ptr[2] = ((reading_ptr[0] == 2) ? (reading_ptr[2] ^ 1) : reading_ptr[2]);
      reading_ptr[1] = ((reading_ptr[0] == 2) ? 0 : (reading_ptr[1] + 80));
      reading_ptr[0] = ((reading_ptr[0] == 2) ? 0 : (reading_ptr[0] + 1));
    }
    tvm_builtin_ptx_wgmma_wait_group_wait_group_sync_aligned_0();
    acc_ptr[0] = ladder_hold_f32(acc_ptr[0]);
    acc_ptr[1] = ladder_hold_f32(acc_ptr[1]);
    acc_ptr[2] = ladder_hold_f32(acc_ptr[2]);
    acc_ptr[3] = ladder_hold_f32(acc_ptr[3]);
    acc_ptr[4] = ladder_hold_f32(acc_ptr[4]);
    acc_ptr[5] = ladder_hold_f32(acc_ptr[5]);
    acc_ptr[6] = ladder_hold_f32(acc_ptr[6]);
    acc_ptr[7] = ladder_hold_f32(acc_ptr[7]);
    alignas(64) float unit_back_ptr[1];
    unit_back_ptr[0] = unit_ptr[1];
    acc_ptr[0] = (acc_ptr[0] * unit_back_ptr[0]);
    acc_ptr[1] = (acc_ptr[1] * unit_back_ptr[0]);
    acc_ptr[2] = (acc_ptr[2] * unit_back_ptr[0]);
    acc_ptr[3] = (acc_ptr[3] * unit_back_ptr[0]);
    acc_ptr[4] = (acc_ptr[4] * unit_back_ptr[0]);
    acc_ptr[5] = (acc_ptr[5] * unit_back_ptr[0]);
    acc_ptr[6] = (acc_ptr[6] * unit_back_ptr[0]);
    acc_ptr[7] = (acc_ptr[7] * unit_back_ptr[0]);
    tvm_builtin_ptx_barrier_cluster_arrive_cluster_arrive_release_aligned();
    tvm_builtin_ptx_barrier_cluster_wait_cluster_wait_acquire_aligned();
    alignas(64) uint there_ptr[1];
    there_ptr[0] = (uint)0;
    uint cse_v22 = (arena_address + ((uint)(cse_v10 + (((int)threadIdx.x) * 16))));
    tvm_builtin_ptx_mapa_u32_shared__cluster_u32(there_ptr[0], cse_v22, (uint)0);
    tvm_builtin_ptx_st_vec_shared__cluster_v4_f32(there_ptr[0], acc_ptr[0], acc_ptr[1], acc_ptr[2], acc_ptr[3]);
    alignas(64) uint there_ptr_1[1];
    there_ptr_1[0] = (uint)0;
    tvm_builtin_ptx_mapa_u32_shared__cluster_u32(there_ptr_1[0], cse_v22, (uint)1);
    tvm_builtin_ptx_st_vec_shared__cluster_v4_f32(there_ptr_1[0], acc_ptr[4], acc_ptr[5], acc_ptr[6], acc_ptr[7]);
    tvm_builtin_ptx_barrier_cluster_arrive_cluster_arrive_release_aligned();
    tvm_builtin_ptx_barrier_cluster_wait_cluster_wait_acquire_aligned();
    alignas(64) float sum_ptr[4];
    alignas(64) float part_ptr[4];
    int4 v_ = make_int4((cse_v9)+(1*0), (cse_v9)+(1*1), (cse_v9)+(1*2), (cse_v9)+(1*3));
    *(float4*)(sum_ptr + 0) = make_float4(((float*)arena_ptr)[v_.x],((float*)arena_ptr)[v_.y],((float*)arena_ptr)[v_.z],((float*)arena_ptr)[v_.w]);
    int4 v__1 = make_int4(((cse_v9 + 512))+(1*0), ((cse_v9 + 512))+(1*1), ((cse_v9 + 512))+(1*2), ((cse_v9 + 512))+(1*3));
    *(float4*)(part_ptr + 0) = make_float4(((float*)arena_ptr)[v__1.x],((float*)arena_ptr)[v__1.y],((float*)arena_ptr)[v__1.z],((float*)arena_ptr)[v__1.w]);
    sum_ptr[0] = (sum_ptr[0] + part_ptr[0]);
    sum_ptr[1] = (sum_ptr[1] + part_ptr[1]);
    sum_ptr[2] = (sum_ptr[2] + part_ptr[2]);
    sum_ptr[3] = (sum_ptr[3] + part_ptr[3]);
    alignas(64) float finished_ptr[1];
    int cse_v23 = (((cse_v2 * 64) + (cse_v1 * 16)) + (cse_v3 >> 2));
    int cse_v24 = min(cse_v23, 71);
    finished_ptr[0] = (sum_ptr[0] + ladder_cvt_f32_f16(bias_ptr[cse_v24]));
    alignas(64) float finished_ptr_1[1];
    finished_ptr_1[0] = (sum_ptr[1] + ladder_cvt_f32_f16(bias_ptr[cse_v24]));
    alignas(64) float finished_ptr_2[1];
    int cse_v25 = min((cse_v23 + 8), 71);
    finished_ptr_2[0] = (sum_ptr[2] + ladder_cvt_f32_f16(bias_ptr[cse_v25]));
    alignas(64) float finished_ptr_3[1];
    finished_ptr_3[0] = (sum_ptr[3] + ladder_cvt_f32_f16(bias_ptr[cse_v25]));
    alignas(64) uint stored_ptr[2];
    stored_ptr[0] = ladder_cvt_f16x2_f32(finished_ptr_1[0], finished_ptr[0]);
    stored_ptr[1] = ladder_cvt_f16x2_f32(finished_ptr_3[0], finished_ptr_2[0]);
    int cse_v11 = (((int)threadIdx.x) & 7);
    tvm_builtin_ptx_stmatrix_sync_aligned_m8n8_x2_trans_shared_b16((arena_address + ((uint)(((cse_v11 * 128) + ((((cse_v1 * 2) + ((((int)threadIdx.x) & 15) >> 3)) ^ (cse_v11 & 7)) * 16)) + 4096))), stored_ptr[0], stored_ptr[1]);
    tvm_builtin_ptx_barrier_sync_count_cta_sync_aligned((uint)1, (uint)128);
    if (((int)threadIdx.x) < 64) {
      int cse_v12 = (((int)threadIdx.x) >> 3);
      if ((((cse_v2 * 8) + cse_v11) < 9) && (((cse_v5 + (((int)tvm_builtin_cluster_ctaid_x()) * 8)) + cse_v12) < m)) {
        int64_t cse_v13 = ((int64_t)((int)threadIdx.x));
        int64_t cse_v26 = ((((((int64_t)((int)blockIdx.x)) >> (int64_t)1) * (int64_t)64) + ((cse_v13 & (int64_t)7) * (int64_t)8)) + ((((((int64_t)((int)blockIdx.y)) * (int64_t)16) + (((int64_t)((int)tvm_builtin_cluster_ctaid_x())) * (int64_t)8)) + (cse_v13 >> (int64_t)3)) * y_stride_m));
        int64_t offset = cse_v26;
        int cse_v18 = (cse_v11 ^ (cse_v12 & 7));
        if (y_pieces != 0) {
          alignas(64) uint piece_ptr[4];
          *(uint4*)(piece_ptr + 0) = *(uint4*)(((uint*)arena_ptr) + (((cse_v12 * 32) + (cse_v18 * 4)) + 1024));
          tvm_builtin_ptx_st_vec_global_v4_b32((&(y_ptr[cse_v26])), piece_ptr[0], piece_ptr[1], piece_ptr[2], piece_ptr[3]);
        }
        if (y_pieces == 0) {
          for (int element = 0; element < 8; ++element) {
            y_ptr[(cse_v26 + ((int64_t)element))] = ((ushort*)arena_ptr)[((((cse_v12 * 64) + (cse_v18 * 8)) + element) + 2048)];
          }
        }
      }
    }
  }
}

