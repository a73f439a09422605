// The functions that generated text may use. Only those that it does use go before it.
#include "backend/cuda/quick_math.h"
#include "backend/cuda/renderer.h"

namespace egret::backend::cuda {

namespace {

constexpr clike::Piece kPieces[] = {
    {"eg_floordiv eg_floormod", R"(
template <class A, class B> __device__ __forceinline__ auto eg_floordiv(A a, B b) -> decltype(a / b) {
  auto q = a / b;
  return a % b < 0 ? q - 1 : q;
}
template <class A, class B> __device__ __forceinline__ auto eg_floormod(A a, B b) -> decltype(a % b) {
  auto r = a % b;
  return r < 0 ? r + b : r;
}
)"},
    {"eg_scalar", R"(
template <class T> __device__ __forceinline__ T eg_scalar(unsigned long long bits) { return (T)bits; }
template <> __device__ __forceinline__ float eg_scalar<float>(unsigned long long bits) {
  return __uint_as_float((unsigned)bits);
}
template <> __device__ __forceinline__ double eg_scalar<double>(unsigned long long bits) {
  return __longlong_as_double((long long)bits);
}
)"},
    {"eg_split", R"(
__device__ __forceinline__ void eg_split(unsigned* w, uint4 q) {
  w[0] = q.x; w[1] = q.y; w[2] = q.z; w[3] = q.w;
}
__device__ __forceinline__ void eg_split(unsigned* w, uint2 q) { w[0] = q.x; w[1] = q.y; }
)"},
    {"eg_put8", R"(
__device__ __forceinline__ void eg_put8(unsigned* w, unsigned long long v) {
  w[0] = (unsigned)v; w[1] = (unsigned)(v >> 32);
}
__device__ __forceinline__ void eg_put8(unsigned* w, long long v) { eg_put8(w, (unsigned long long)v); }
__device__ __forceinline__ void eg_put8(unsigned* w, double v) {
  eg_put8(w, (unsigned long long)__double_as_longlong(v));
}
)"},
    // Round to nearest even, denormals kept.
    {"eg_bf16x2", R"(
__device__ __forceinline__ unsigned eg_bf16x2(float low, float high) {
  unsigned d;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(d) : "f"(high), "f"(low));
  return d;
}
)"},
    {"eg_f16x2", R"(
__device__ __forceinline__ unsigned eg_f16x2(float low, float high) {
  unsigned d;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(d) : "f"(high), "f"(low));
  return d;
}
)"},
    {"eg_pair", R"(
__device__ __forceinline__ unsigned eg_pair(unsigned short low, unsigned short high) {
  return (unsigned)low | (unsigned)high << 16;
}
)"},
    {"eg_fma_bf16x2", R"(
__device__ __forceinline__ unsigned eg_fma_bf16x2(unsigned a, unsigned b, unsigned c) {
  unsigned d;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c));
  return d;
}
)"},
    {"eg_fma_f16x2", R"(
__device__ __forceinline__ unsigned eg_fma_f16x2(unsigned a, unsigned b, unsigned c) {
  unsigned d;
  asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c));
  return d;
}
)"},
    {"eg_to_bf16", R"(
__device__ __forceinline__ unsigned short eg_to_bf16(float x) {
  unsigned short d;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(d) : "f"(x));
  return d;
}
)"},
    {"eg_to_f16", R"(
__device__ __forceinline__ unsigned short eg_to_f16(float x) {
  unsigned short d;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(d) : "f"(x));
  return d;
}
)"},
    {"eg_from_bf16", R"(
__device__ __forceinline__ float eg_from_bf16(unsigned short h) {
  return __uint_as_float((unsigned)h << 16);
}
)"},
    {"eg_from_f16", R"(
__device__ __forceinline__ float eg_from_f16(unsigned short h) {
  float d;
  asm("cvt.f32.f16 %0, %1;" : "=f"(d) : "h"(h));
  return d;
}
)"},
    {"eg_from_f8e5m2", R"(
__device__ __forceinline__ float eg_from_f8e5m2(unsigned char v) {
  float d;
  asm("cvt.f32.f16 %0, %1;" : "=f"(d) : "h"((unsigned short)(v << 8)));
  return d;
}
)"},
    // An f16 with the same exponent and mantissa bits is 2^8 times smaller.
    {"eg_from_f8e4m3", R"(
__device__ __forceinline__ float eg_from_f8e4m3(unsigned char v) {
  float d;
  asm("cvt.f32.f16 %0, %1;" : "=f"(d) : "h"((unsigned short)((v & 0x80) << 8 | (v & 0x7f) << 7)));
  return (v & 0x7f) == 0x7f ? __uint_as_float(0x7fc00000u) : d * 256.0f;
}
)"},
    // Rounded in the integer where the format has a unit of its own, by an addition where it is the
    // denormals'. e4m3 has no infinity: what is beyond 464 becomes its NaN.
    {"eg_to_f8e4m3", R"(
__device__ __forceinline__ unsigned char eg_to_f8e4m3(float x) {
  const unsigned bits = __float_as_uint(x), size = bits & 0x7fffffffu;
  unsigned r = (size + ((size >> 20) & 1u) + 0x7ffffu - (120u << 23)) >> 20;
  if (size < (121u << 23)) r = __float_as_uint(__uint_as_float(size) + 16384.0f) - 0x46800000u;
  if (size > 0x43e80000u) r = 0x7fu;
  return (unsigned char)(r | bits >> 24 & 0x80u);
}
)"},
    {"eg_to_f8e5m2", R"(
__device__ __forceinline__ unsigned char eg_to_f8e5m2(float x) {
  const unsigned bits = __float_as_uint(x), size = bits & 0x7fffffffu;
  unsigned r = (size + ((size >> 21) & 1u) + 0xfffffu - (112u << 23)) >> 21;
  if (size < (113u << 23)) r = __float_as_uint(__uint_as_float(size) + 128.0f) - 0x43000000u;
  if (size >= 0x47700000u) r = size > 0x7f800000u ? 0x7eu : 0x7cu;
  return (unsigned char)(r | bits >> 24 & 0x80u);
}
)"},
    // Towards zero with the last bit set when inexact, so that a later rounding is the only one. Of
    // 32 bits, where no rounding to 16 bits depends on which of the last eight or nine is set: 24
    // are left.
    {"eg_odd", R"(
__device__ __forceinline__ float eg_odd(int x) {
  const int y = x & 255 ? (x & ~255) | 128 : x;
  return (float)((unsigned)x + 65536u < 131072u ? x : y);
}
__device__ __forceinline__ float eg_odd(unsigned x) {
  const unsigned y = x & 511u ? (x & ~511u) | 256u : x;
  return (float)(x < 131072u ? x : y);
}
__device__ __forceinline__ float eg_odd(double x) {
  const float f = __double2float_rz(x);
  return x == x && (double)f != x ? __uint_as_float(__float_as_uint(f) | 1u) : f;
}
__device__ __forceinline__ float eg_odd(long long x) {
  const float f = __ll2float_rz(x);
  return (f < 9.2233720368547758e18f && (long long)f == x) ? f
         : x == (long long)0x8000000000000000ull ? f : __uint_as_float(__float_as_uint(f) | 1u);
}
__device__ __forceinline__ float eg_odd(unsigned long long x) {
  const float f = __ull2float_rz(x);
  return (unsigned long long)f == x ? f : __uint_as_float(__float_as_uint(f) | 1u);
}
)"},
    // NaN if one is NaN, and -0 below 0.
    {"eg_max", R"(
__device__ __forceinline__ float eg_max(float a, float b) {
  float d;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(d) : "f"(a), "f"(b));
  return d;
}
__device__ __forceinline__ double eg_max(double a, double b) {
  if (a != a || b != b) return __longlong_as_double(0x7ff8000000000000ll);
  if (a == b) return __double_as_longlong(a) < 0 ? b : a;
  return a > b ? a : b;
}
)"},
    // The result has the sign of b.
    {"eg_mod", R"(
__device__ __forceinline__ float eg_mod(float a, float b) {
  const float r = fmodf(a, b);
  if (r == 0) return copysignf(0.0f, b);
  return (r < 0) != (b < 0) ? r + b : r;
}
__device__ __forceinline__ double eg_mod(double a, double b) {
  const double r = fmod(a, b);
  if (r == 0) return copysign(0.0, b);
  return (r < 0) != (b < 0) ? r + b : r;
}
)"},
    // What depends on the divisor only is made once where one divides many: with it scaled to where
    // its reciprocal is a normal number, a quotient is two products.
    {"eg_narrow_div", R"(
__device__ __forceinline__ float eg_narrow_div(float a, float b) {
  const float scale = )" EGRET_TEXT(EGRET_NARROW_SCALE) R"(;
  float r;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(b * scale));
  return a * r * scale;
}
)"},
    {"eg_quick_exp2", R"(
__device__ __forceinline__ float eg_quick_exp2(float x) {
  float r;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
  return r;
}
)"},
    {"eg_quick_recip", R"(
__device__ __forceinline__ float eg_quick_recip(float x) {
  float r;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
  return r;
}
)"},
    {"eg_quick_div", R"(
__device__ __forceinline__ float eg_quick_div(float a, float b) {
  float r;
  asm("rcp.approx.f32 %0, %1;" : "=f"(r) : "f"(b));
  )" EGRET_TEXT(EGRET_QUICK_DIV) R"(
}
)"},
    {"eg_quick_sqrt", R"(
__device__ __forceinline__ float eg_quick_sqrt(float x) {
  const float y = x * )" EGRET_TEXT(EGRET_ROOT_SCALE) R"(;
  float r;
  asm("rsqrt.approx.f32 %0, %1;" : "=f"(r) : "f"(y));
  )" EGRET_TEXT(EGRET_QUICK_SQRT) R"(
}
)"},
    // Of what is at most 0: its product with the logarithm is off by |x| 2^-23, the power by as
    // much of itself, which is at most 2^-24.
    {"eg_quick_exp", R"(
__device__ __forceinline__ float eg_quick_exp(float x) {
  float r;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x * 1.4426950408889634f));
  return r;
}
)"},
    {"eg_narrow_exp", R"(
__device__ __forceinline__ float eg_narrow_exp(float x) {
  float e;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(e) : "f"()" EGRET_TEXT(EGRET_NARROW_POWER(x)) R"());
  return e;
}
)"},
    {"eg_narrow_sigmoid", R"(
__device__ __forceinline__ float eg_narrow_sigmoid(float x) {
  float e, r;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(e) : "f"()" EGRET_TEXT(EGRET_NARROW_POWER(-x)) R"());
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(1.0f + e));
  return r;
}
)"},
    {"eg_narrow_tanh", R"(
__device__ __forceinline__ float eg_narrow_tanh(float x) {
  float e, r;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(e) : "f"(fabsf(x) * 2.88539008f));
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(1.0f + e));
  )" EGRET_TEXT(EGRET_NARROW_TANH) R"(
}
)"},
    {"eg_sigmoid", R"(
__device__ __forceinline__ float eg_sigmoid(float x) {
  const float e = expf(-fabsf(x));
  return (x < 0 ? e : 1.0f) / (1.0f + e);
}
__device__ __forceinline__ double eg_sigmoid(double x) {
  const double e = exp(-fabs(x));
  return (x < 0 ? e : 1.0) / (1.0 + e);
}
)"},
    // Rounded down; 0 where b is 0; the lowest value by -1 wraps to itself.
    {"eg_idiv eg_imod", R"(
template <class T> __device__ __forceinline__ T eg_idiv(T a, T b) {
  if (b == 0) return 0;
  if ((T)-1 < (T)0) {
    if (b == (T)-1) return (T)(0 - (unsigned long long)a);
    const T q = a / b;
    return a % b != 0 && (a < 0) != (b < 0) ? (T)(q - 1) : q;
  }
  return a / b;
}
template <class T> __device__ __forceinline__ T eg_imod(T a, T b) {
  if (b == 0) return 0;
  return (T)((unsigned long long)a - (unsigned long long)eg_idiv<T>(a, b) * (unsigned long long)b);
}
)"},
    // Counts beyond the width shift everything out; negative ones are beyond it.
    {"eg_shl eg_shr", R"(
template <class T> __device__ __forceinline__ T eg_shl(T a, T n) {
  const bool over = n < 0 || (unsigned long long)n >= 8 * sizeof(T);
  return over ? (T)0 : (T)((unsigned long long)a << (int)n);
}
template <class T> __device__ __forceinline__ T eg_shr(T a, T n) {
  const bool over = n < 0 || (unsigned long long)n >= 8 * sizeof(T);
  if ((T)-1 < (T)0) return (T)(a >> (over ? (int)(8 * sizeof(T) - 1) : (int)n));
  return over ? (T)0 : (T)(a >> (int)n);
}
)"},
    {"eg_shuffle_xor", R"(
template <class T> __device__ __forceinline__ T eg_shuffle_xor(T v, int distance, unsigned mask) {
  return (T)__shfl_xor_sync(mask, v, distance);
}
)"},
    {"eg_shuffle_up", R"(
template <class T> __device__ __forceinline__ T eg_shuffle_up(T v, int distance, unsigned mask) {
  return (T)__shfl_up_sync(mask, v, distance);
}
)"},
    // Lanes that add the same to the same element do so in one operation (warp-aggregated atomics,
    // Adinets 2014).
    {"eg_fetch_add", R"(
__device__ __forceinline__ int eg_fetch_add(int* element, int value) {
  const unsigned active = __activemask();
  const unsigned same = __match_any_sync(active, (unsigned long long)element) &
                        __match_any_sync(active, value);
  const int lane = threadIdx.x & 31, leader = __ffs(same) - 1;
  int before = 0;
  if (lane == leader) before = atomicAdd(element, value * __popc(same));
  return __shfl_sync(same, before, leader) + value * __popc(same & ((1u << lane) - 1));
}
)"},
    // Shared memory adds 32 bits in one operation, and 64 by a loop of comparisons and exchanges:
    // the halves are added one after the other, the second with what the first carries. Lanes that
    // all add to one element do so once.
    {"eg_add_shared", R"(
__device__ __forceinline__ void eg_add_shared(unsigned long long* sum, unsigned long long value) {
  const unsigned active = __activemask();
  int same;
  __match_all_sync(active, (unsigned long long)sum, &same);
  if (same) {
#if __CUDA_ARCH__ >= 800
    unsigned long long all = 0;
    for (int at = 48; at >= 0; at -= 16)
      all = (all << 16) + __reduce_add_sync(active, (unsigned)(value >> at) & 0xffffu);
#else
    unsigned long long all = 0;
    for (unsigned left = active; left; left &= left - 1)
      all += __shfl_sync(active, value, __ffs(left) - 1);
#endif
    if ((threadIdx.x & 31) != __ffs(active) - 1) return;
    value = all;
  }
  const unsigned low = (unsigned)value, before = atomicAdd((unsigned*)sum, low);
  const unsigned high = (unsigned)(value >> 32) + (before + low < low);
  if (high) atomicAdd((unsigned*)sum + 1, high);
}
)"},
    {"eg_max_shared", R"(
__device__ __forceinline__ void eg_max_shared(int* most, int value) {
  const unsigned active = __activemask();
  int same;
  __match_all_sync(active, (unsigned long long)most, &same);
  if (same) {
#if __CUDA_ARCH__ >= 800
    value = __reduce_max_sync(active, value);
#else
    for (unsigned left = active; left; left &= left - 1)
      value = max(value, __shfl_sync(active, value, __ffs(left) - 1));
#endif
    if ((threadIdx.x & 31) != __ffs(active) - 1) return;
  }
  atomicMax(most, value);
}
)"},
    // Warp-level multisplit (Ashkiani, Davidson, Meyer and Owens 2016): the lanes that count the
    // same element find each other by their bits in its mark.
    {"eg_count_in_order", R"(
__device__ __forceinline__ int eg_count_in_order(int* c, unsigned* mark, bool held) {
  const unsigned own = 1u << (threadIdx.x & 31);
  if (held) atomicOr(mark, own);
  __syncwarp();
  const unsigned all = held ? *mark : 0u, below = all & (own - 1);
  const int before = held ? *c : 0;
  __syncwarp();
  if (held && below == 0) {
    *c = before + __popc(all);
    *mark = 0;
  }
  __syncwarp();
  return before + __popc(below);
}
)"},
    // The same number, of which the compiler knows nothing: what is derived from it stays behind
    // it.
    {"eg_opaque", R"(
__device__ __forceinline__ int eg_opaque(int n) {
  asm volatile("" : "+r"(n));
  return n;
}
)"},
    // Programmatic dependent launch: blocks wait until the kernel before has ended and its memory
    // can be seen. The next kernel's blocks may come at once, or else as this one's end.
    {"eg_wait_for_launch_before", R"(
__device__ __forceinline__ void eg_wait_for_launch_before() {
  asm volatile("griddepcontrol.wait;" ::: "memory");
}
)"},
    // Loads of memory that nobody writes while the kernel runs. Nothing but their pointer keeps
    // them behind the wait, so that they may leave loops and be used again behind stores.
    {"eg_after_wait", R"(
__device__ __forceinline__ void* eg_after_wait(void* p) {
  asm volatile("" : "+l"(p));
  return p;
}
)"},
    {"eg_load", R"(
__device__ __forceinline__ float eg_load(const float* p) {
  float v;
  asm("ld.global.f32 %0, [%1];" : "=f"(v) : "l"(p));
  return v;
}
__device__ __forceinline__ double eg_load(const double* p) {
  double v;
  asm("ld.global.f64 %0, [%1];" : "=d"(v) : "l"(p));
  return v;
}
__device__ __forceinline__ short eg_load(const short* p) {
  short v;
  asm("ld.global.s16 %0, [%1];" : "=h"(v) : "l"(p));
  return v;
}
__device__ __forceinline__ unsigned short eg_load(const unsigned short* p) {
  unsigned short v;
  asm("ld.global.u16 %0, [%1];" : "=h"(v) : "l"(p));
  return v;
}
__device__ __forceinline__ int eg_load(const int* p) {
  int v;
  asm("ld.global.s32 %0, [%1];" : "=r"(v) : "l"(p));
  return v;
}
__device__ __forceinline__ unsigned eg_load(const unsigned* p) {
  unsigned v;
  asm("ld.global.u32 %0, [%1];" : "=r"(v) : "l"(p));
  return v;
}
__device__ __forceinline__ long long eg_load(const long long* p) {
  long long v;
  asm("ld.global.s64 %0, [%1];" : "=l"(v) : "l"(p));
  return v;
}
__device__ __forceinline__ unsigned long long eg_load(const unsigned long long* p) {
  unsigned long long v;
  asm("ld.global.u64 %0, [%1];" : "=l"(v) : "l"(p));
  return v;
}
__device__ __forceinline__ signed char eg_load(const signed char* p) {
  int v;
  asm("ld.global.s8 %0, [%1];" : "=r"(v) : "l"(p));
  return (signed char)v;
}
__device__ __forceinline__ unsigned char eg_load(const unsigned char* p) {
  unsigned v;
  asm("ld.global.u8 %0, [%1];" : "=r"(v) : "l"(p));
  return (unsigned char)v;
}
__device__ __forceinline__ uint2 eg_load(const uint2* p) {
  uint2 v;
  asm("ld.global.v2.u32 {%0, %1}, [%2];" : "=r"(v.x), "=r"(v.y) : "l"(p));
  return v;
}
__device__ __forceinline__ uint4 eg_load(const uint4* p) {
  uint4 v;
  asm("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(p));
  return v;
}
)"},
    {"eg_load_here", R"(
template <class T>
__device__ __forceinline__ T eg_load_here(const T* p) {
  return eg_load((const T*)eg_after_wait((void*)p));
}
)"},
    {"eg_let_next_launch_come", R"(
__device__ __forceinline__ void eg_let_next_launch_come() {
  asm volatile("griddepcontrol.launch_dependents;");
}
)"},
    // Two words: how many blocks have come, and how often all have.
    {"eg_grid_barrier", R"(
__device__ __forceinline__ void eg_grid_barrier(unsigned* c) {
  __syncthreads();
  if (threadIdx.x == 0) {
    __threadfence();
    volatile unsigned* const round = c + 1;
    const unsigned before = *round;
    __threadfence();
    if (atomicAdd(c, 1u) == gridDim.x - 1) {
      *(volatile unsigned*)c = 0;
      __threadfence();
      *round = before + 1;
    } else {
      while (*round == before) __nanosleep(32);
    }
    __threadfence();
  }
  __syncthreads();
}
)"},
    {"eg_last", R"(
__device__ __forceinline__ bool eg_last(unsigned* c, unsigned arrivals) {
  __threadfence();
  __syncthreads();
  bool last = false;
  if (threadIdx.x == 0) {
    last = atomicAdd(c, 1u) == arrivals - 1;
    if (last) *(volatile unsigned*)c = 0;
  }
  last = __syncthreads_or(last);
  if (last) __threadfence();
  return last;
}
)"},
    {"eg_post", R"(
__device__ __forceinline__ void eg_post(unsigned* c) {
  __threadfence();
  *(volatile unsigned*)c = 1;
}
)"},
    {"eg_await_posts", R"(
__device__ __forceinline__ void eg_await_posts(unsigned* c, int begin, int end) {
  for (int i = begin + (int)threadIdx.x; i < end; i += blockDim.x)
    while (*(volatile unsigned*)(c + i) == 0) {}
  __threadfence();
  __syncthreads();
}
)"},
    // Value and flag in one access of 64 bits, which needs no order with any other.
    {"eg_publish_word", R"(
__device__ __forceinline__ void eg_publish_word(unsigned* c, unsigned v) {
  asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" :: "l"(c), "l"((unsigned long long)v << 32 | 1ull) : "memory");
}
)"},
    {"eg_await_word", R"(
__device__ __forceinline__ unsigned eg_await_word(const unsigned* c) {
  unsigned long long w;
  do asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(w) : "l"(c) : "memory");
  while ((unsigned)w == 0);
  return (unsigned)(w >> 32);
}
)"},
    // Behind it no block awaits a post.
    {"eg_clear_posts", R"(
__device__ __forceinline__ void eg_clear_posts(unsigned* c, int count, unsigned* arrived) {
  __threadfence();
  __syncthreads();
  bool last = false;
  if (threadIdx.x == 0) {
    last = atomicAdd(arrived, 1u) == gridDim.x - 1;
    if (last) *(volatile unsigned*)arrived = 0;
  }
  if (__syncthreads_or(last))
    for (int i = threadIdx.x; i < count; i += blockDim.x) c[i] = 0;
}
)"},
    // The last `threads` of the block come here, and meet at a barrier of their own.
    {"eg_last_of", R"(
__device__ __forceinline__ bool eg_last_of(unsigned* c, unsigned arrivals, int barrier, int threads) {
  __threadfence();
  asm volatile("bar.sync %0, %1;" :: "r"(barrier), "r"(threads) : "memory");
  int last = 0;
  if (threadIdx.x == blockDim.x - threads) {
    last = atomicAdd(c, 1u) == arrivals - 1;
    if (last) *(volatile unsigned*)c = 0;
  }
  asm volatile("{\n\t.reg .pred mine, any;\n\tsetp.ne.s32 mine, %0, 0;\n\t"
               "bar.red.or.pred any, %1, %2, mine;\n\tselp.s32 %0, 1, 0, any;\n\t}"
               : "+r"(last) : "r"(barrier), "r"(threads) : "memory");
  if (last) __threadfence();
  return last != 0;
}
)"},
};

} // namespace

std::span<const clike::Piece> prelude_pieces() {
  return kPieces;
}

} // namespace egret::backend::cuda
