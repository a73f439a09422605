// Rows of functions that work element by element.
#pragma once

#include "functions.h"

#include <functional>
#include <utility>

namespace egret::testing {

using Unary = std::function<Tensor(const Tensor&)>;
using Binary = Tensor (*)(const Arg&, const Arg&);
using Plain1 = double (*)(double);
using Plain2 = double (*)(double, double);

// What a function does to the instance's dtype.
enum class Result { Same, Float, Bool };

inline std::optional<DType> type_of(Result result, const Draw& d) {
  if (result == Result::Bool)
    return DType::Bool;
  return result == Result::Float && whole(d.dtype) ? std::optional(DType::F32) : std::nullopt;
}

struct Options {
  double low = -2, high = 2;
  Types types = Types::Floats;
  Result result = Result::Same;
  bool gradient = true, special = true;
  double slack = 1;
};

inline Row unary(std::string name, Unary call, Plain1 plain, Options o = {}) {
  return {std::move(name),
          [=](Draw& d) {
            const auto type = type_of(o.result, d);
            return one(
                {d.array(d.shape(0, 3), o.low, o.high)},
                [=](const Tensors& t) { return call(t[0]); },
                [=](const Arrays& a) {
                  Array r = map(a[0], plain);
                  r.type = type;
                  return r;
                });
          },
          o.types,
          o.gradient,
          o.special,
          o.slack,
          true};
}

inline Row binary(std::string name, Binary call, Plain2 plain, Options o = {}) {
  return {std::move(name),
          [=](Draw& d) {
            const Sizes shape = d.shape(0, 3);
            const bool turned = d.chance();
            const auto type = type_of(o.result, d);
            Array a = d.array(shape, o.low, o.high),
                  b = d.array(d.broadcastable(shape), o.low, o.high);
            if (turned)
              std::swap(a, b);
            return one(
                {a, b}, [=](const Tensors& t) { return call(t[0], t[1]); },
                [=](const Arrays& x) {
                  Array r = zip(x[0], x[1], plain);
                  r.type = type;
                  return r;
                });
          },
          o.types,
          o.gradient,
          o.special,
          o.slack};
}

} // namespace egret::testing
