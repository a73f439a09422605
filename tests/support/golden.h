// Numbers that PyTorch computed (tests/golden), and the weights and data that both sides start
// from.
#pragma once

#include "egret/functional.h"
#include "egret/grad.h"
#include "egret/nn.h"

#include <cmath>
#include <fstream>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace egret::test {

/// A file of tests/golden.
inline const nlohmann::json& golden(const char* name) {
  static std::map<std::string, nlohmann::json> read;
  auto [place, fresh] = read.try_emplace(name);
  if (fresh) {
    std::ifstream in(std::string(EGRET_TEST_SOURCE_DIR) + "/golden/" + name);
    place->second = nlohmann::json::parse(in);
  }
  return place->second;
}

/// Uniform in [-1, 1), multiples of 2^-23, by splitmix64: numbers() of make_training.py.
inline std::vector<double> golden_numbers(std::size_t count, std::uint64_t seed) {
  std::vector<double> out;
  for (std::size_t i = 0; i < count; ++i) {
    std::uint64_t z = seed += 0x9e3779b97f4a7c15U;
    z = (z ^ z >> 30U) * 0xbf58476d1ce4e5b9U;
    z = (z ^ z >> 27U) * 0x94d049bb133111ebU;
    z ^= z >> 31U;
    out.push_back(static_cast<double>(z >> 40U) / (1 << 23) - 1);
  }
  return out;
}

inline std::size_t count_of(const Shape& shape) {
  std::size_t count = 1;
  for (const Expr& dim : shape)
    count *= static_cast<std::size_t>(dim.value());
  return count;
}

inline Tensor golden_data(const Shape& shape, std::uint64_t seed, DType type = DType::F32) {
  return tensor(golden_numbers(count_of(shape), seed), shape).to(type);
}

inline Tensor golden_classes(const Shape& shape, std::uint64_t seed, double most) {
  std::vector<std::int64_t> out;
  for (double value : golden_numbers(count_of(shape), seed))
    out.push_back(static_cast<std::int64_t>(std::floor((value + 1) * 0.5 * most)));
  return tensor(out, shape);
}

/// All floats of a module in f64, parameters as such.
template <class M>
void widen(M& module) {
  struct Widen final : TreeVisitor {
    void tensor(const std::string&, Tensor& value) override {
      if (!is_float(value.dtype()))
        return;
      const bool parameter = value.requires_grad();
      value = value.detach().to(DType::F64).clone();
      value.set_requires_grad(parameter);
    }
    bool wants_paths() const override { return false; }
  } visitor;
  visit_tree(module, visitor);
}

/// set_weights() of make_training.py: the same numbers for the same names in the same order.
template <class M>
void set_golden_weights(M& module, std::uint64_t seed) {
  NoGrad no_grad;
  std::uint64_t k = 0;
  for (auto [name, p] : nn::named_parameters(module)) {
    std::vector<double> values =
        golden_numbers(static_cast<std::size_t>(p.numel()), 1000 * seed + k++);
    const bool scales =
        name.ends_with("weight") &&
        (name.find("norm") != std::string::npos || name.find("bn") != std::string::npos ||
         name.find(".downsample.1.") != std::string::npos);
    const double inputs =
        p.rank() >= 2 ? static_cast<double>(p.numel()) / static_cast<double>(p.size(0)) : 1;
    for (double& value : values)
      value = p.rank() >= 2 ? value * std::sqrt(3.0 / inputs) : value * 0.1 + (scales ? 1 : 0);
    p.assign(tensor(values, p.shape()));
  }
}

/// Expects numbers near those of the file, relative to the largest of them.
inline void expect_golden(const std::vector<double>& got, const nlohmann::json& want,
                          double tolerance, const std::string& what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  double largest = 0;
  for (const auto& value : want)
    largest = std::max(largest, std::abs(value.get<double>()));
  for (std::size_t i = 0; i < got.size(); ++i)
    ASSERT_NEAR(got[i], want[i].get<double>(), tolerance * largest) << what << " " << i;
}

} // namespace egret::test
