#include "backend/cpu/math_library.h"

#include "support/thread_pool.h"

#include <cmath>
#include <cstdint>

namespace egret::backend::cpu {
namespace {

// In place: values[i] = f(values[i]) for i < n.
template <double (*F)(double)>
void map_f64(double* values, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i)
    values[i] = F(values[i]);
}

// In place: a[i] = f(a[i], b[i]).
template <double (*F)(double, double)>
void map2_f64(double* a, const double* b, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i)
    a[i] = F(a[i], b[i]);
}

// In place: a[i] = a[i] * b[i] + c[i] rounded once.
void fma_f64(double* a, const double* b, const double* c, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i)
    a[i] = std::fma(a[i], b[i], c[i]);
}

double floor_mod(double a, double b) {
  double r = std::fmod(a, b);
  if (r == 0)
    return std::copysign(0.0, b);
  return (r < 0) != (b < 0) ? r + b : r;
}

// In place on f32, through f64: arguments too large for the reduction that is inlined.
template <double (*F)(double)>
void map_f32(float* values, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i)
    values[i] = static_cast<float>(F(static_cast<double>(values[i])));
}

void wait_at(Barrier* barrier) {
  barrier->wait();
}

#define EGRET_MAP(name, function)                                                                  \
  { "egret_" name "_f64", reinterpret_cast<void*>(&map_f64<function>) }

double sin(double x) {
  return std::sin(x);
}
double cos(double x) {
  return std::cos(x);
}
double erf(double x) {
  return std::erf(x);
}
double pow(double x, double y) {
  return std::pow(x, y);
}

} // namespace

std::span<const LibraryFunction> math_library() {
  static const LibraryFunction functions[] = {
      {"egret_barrier", reinterpret_cast<void*>(&wait_at)},
      EGRET_MAP("sin", sin),
      EGRET_MAP("cos", cos),
      EGRET_MAP("erf", erf),
      {"egret_fma_f64", reinterpret_cast<void*>(&fma_f64)},
      {"egret_pow_f64", reinterpret_cast<void*>(&map2_f64<pow>)},
      {"egret_mod_f64", reinterpret_cast<void*>(&map2_f64<floor_mod>)},
      {"egret_sin_large_f32", reinterpret_cast<void*>(&map_f32<sin>)},
      {"egret_cos_large_f32", reinterpret_cast<void*>(&map_f32<cos>)},
  };
  return functions;
}

} // namespace egret::backend::cpu
