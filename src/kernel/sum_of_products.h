// Polynomials in the values of a kernel program, as sums of products.
#pragma once

#include "kernel/program.h"

#include <cstddef>
#include <optional>
#include <vector>

namespace egret::kernel {

/// A product of values, in ascending order; powers repeat.
using Monomial = std::vector<ValueId>;

/// A number times values that are the same in all lanes.
struct Scale {
  double number = 1;
  Monomial uniforms;
};

/// The sum of `scale` times the product of `atoms`.
struct SumTerm {
  std::vector<Scale> scale;
  Monomial atoms;
};

/// Terms with different atoms, in the order in which they were written.
using Polynomial = std::vector<SumTerm>;

Polynomial polynomial_of_number(double number);
Polynomial polynomial_of_uniform(ValueId value);
Polynomial polynomial_of_atom(ValueId value);

/// The sum, with terms of the same atoms collected, and the product, with every term of one times
/// every term of the other. Nothing if a number of the result would be 0 or no normal f32, or if
/// the result has more than 8 terms, or a term of more than 8 factors or 8 scales.
std::optional<Polynomial> sum_of(const Polynomial& a, const Polynomial& b);
std::optional<Polynomial> product_of(const Polynomial& a, const Polynomial& b);

/// Whether the term is a number, or a value times a power of 2: nothing was rounded to make it.
bool is_exact(const SumTerm& term);
std::size_t exact_terms(const Polynomial& p);
/// Whether the scale is this number and no more.
bool is_number(const std::vector<Scale>& scale, double number);

/// The greatest monomial that divides both.
Monomial common_divisor(const Monomial& a, const Monomial& b);
bool divides(const Monomial& divisor, const Monomial& m);
Monomial quotient_of(const Monomial& m, const Monomial& divisor);

} // namespace egret::kernel
