#include "kernel/sum_of_products.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>

namespace egret::kernel {

namespace {

constexpr std::size_t kMostTerms = 8, kMostFactors = 8, kMostScales = 8;

bool is_normal_f32(double number) {
  const double size = std::abs(number);
  return size >= double(std::numeric_limits<float>::min()) &&
         size <= double(std::numeric_limits<float>::max());
}

Monomial merged_factors(const Monomial& a, const Monomial& b) {
  Monomial all;
  std::merge(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(all));
  return all;
}

void add_scale(std::vector<Scale>& scales, const Scale& added) {
  for (Scale& s : scales)
    if (s.uniforms == added.uniforms) {
      s.number += added.number;
      return;
    }
  scales.push_back(added);
}

void add_term(Polynomial& p, const SumTerm& added) {
  for (SumTerm& t : p)
    if (t.atoms == added.atoms) {
      for (const Scale& s : added.scale)
        add_scale(t.scale, s);
      return;
    }
  p.push_back(added);
}

bool is_small(const Polynomial& p) {
  return p.size() <= kMostTerms && std::ranges::all_of(p, [](const SumTerm& t) {
           return t.scale.size() <= kMostScales &&
                  std::ranges::all_of(t.scale, [&](const Scale& s) {
                    return is_normal_f32(s.number) &&
                           s.uniforms.size() + t.atoms.size() <= kMostFactors;
                  });
         });
}

std::optional<Polynomial> if_small(Polynomial p) {
  if (!is_small(p))
    return std::nullopt;
  return p;
}

} // namespace

Polynomial polynomial_of_number(double number) {
  return {{{{number, {}}}, {}}};
}
Polynomial polynomial_of_uniform(ValueId value) {
  return {{{{1, {value}}}, {}}};
}
Polynomial polynomial_of_atom(ValueId value) {
  return {{{{1, {}}}, {value}}};
}

std::optional<Polynomial> sum_of(const Polynomial& a, const Polynomial& b) {
  Polynomial sum = a;
  for (const SumTerm& t : b)
    add_term(sum, t);
  return if_small(std::move(sum));
}

std::optional<Polynomial> product_of(const Polynomial& a, const Polynomial& b) {
  Polynomial product;
  for (const SumTerm& x : a)
    for (const SumTerm& y : b) {
      SumTerm t{{}, merged_factors(x.atoms, y.atoms)};
      for (const Scale& r : x.scale)
        for (const Scale& s : y.scale)
          add_scale(t.scale, {r.number * s.number, merged_factors(r.uniforms, s.uniforms)});
      add_term(product, t);
    }
  return if_small(std::move(product));
}

bool is_exact(const SumTerm& term) {
  if (term.scale.size() != 1)
    return false;
  const Scale& scale = term.scale[0];
  const std::size_t factors = scale.uniforms.size() + term.atoms.size();
  int exponent = 0;
  return factors == 0 || (factors == 1 && std::frexp(std::abs(scale.number), &exponent) == 0.5);
}

std::size_t exact_terms(const Polynomial& p) {
  return std::size_t(std::ranges::count_if(p, is_exact));
}

bool is_number(const std::vector<Scale>& scale, double number) {
  return scale.size() == 1 && scale[0].uniforms.empty() && scale[0].number == number;
}

Monomial common_divisor(const Monomial& a, const Monomial& b) {
  Monomial common;
  std::set_intersection(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(common));
  return common;
}

bool divides(const Monomial& divisor, const Monomial& m) {
  return std::includes(m.begin(), m.end(), divisor.begin(), divisor.end());
}

Monomial quotient_of(const Monomial& m, const Monomial& divisor) {
  Monomial rest;
  std::set_difference(m.begin(), m.end(), divisor.begin(), divisor.end(), std::back_inserter(rest));
  return rest;
}

} // namespace egret::kernel
