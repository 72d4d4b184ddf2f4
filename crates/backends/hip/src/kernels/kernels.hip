// Kernels for examples, tests and benches: work of a given length, stores, and faults on purpose. All parameters are 64-bit numbers but those of saxpy.
// Times are nanoseconds by the clock that counts at 100 MHz on every device that has `wall_clock64`.

typedef unsigned long long u64;
typedef unsigned int u32;

static const u64 BUSY_NS_MAX = 60000000000ull;

static __device__ u64 now_ns() { return (u64)wall_clock64() * 10; }

static __device__ void busy(u64 ns) {
    u64 start = now_ns();
    if (ns > BUSY_NS_MAX) ns = BUSY_NS_MAX;
    while (now_ns() - start < ns) {
    }
}

extern "C" __global__ void occupy(unsigned long long ns) { busy(ns); }

extern "C" __global__ void occupy_until(unsigned long long at) {
    u64 now = now_ns();
    if (at > now) busy(at - now);
}

extern "C" __global__ void store_word(unsigned long long address, unsigned long long value, unsigned long long ns) {
    busy(ns);
    __threadfence_system();
    __hip_atomic_store((u64 *)address, value, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_SYSTEM);
}

extern "C" __global__ void stamp(unsigned long long address) {
    __hip_atomic_store((u64 *)address, now_ns(), __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_SYSTEM);
}

extern "C" __global__ void affine(unsigned long long address, unsigned long long count, unsigned long long factor, unsigned long long addend) {
    u32 *numbers = (u32 *)address;
    u64 step = (u64)gridDim.x * blockDim.x;
    for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step)
        numbers[i] = numbers[i] * (u32)factor + (u32)addend;
}

extern "C" __global__ void traps() { __builtin_trap(); }

extern "C" __global__ void illegal_address() { *(volatile u64 *)8 = 1; }

extern "C" __global__ void assert_fails() { __builtin_trap(); }

extern "C" __global__ void saxpy(float *z, float a, const float *x, const float *y, u32 n) {
    u32 step = gridDim.x * blockDim.x;
    for (u32 i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step)
        z[i] = __builtin_fmaf(a, x[i], y[i]);
}
