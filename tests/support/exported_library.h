// Libraries that a test has exported: loaded into the process, or compiled into a program of C.
#pragma once

#include "backend/c/compiler.h"
#include "egret/compile.h"
#include "egret/functional.h"
#include "egret/grad.h"
#include "egret/nn.h"
#include "support/c_compiler.h"
#include "support/files.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

namespace egret::test {

class ExportedLibraries : public ::testing::Test {
protected:
  void SetUp() override { EGRET_NEEDS_C_COMPILER(); }
  std::string path(const std::string& name) const { return (folder_ / name).string(); }

  /// The function of a library that was written to the folder.
  template <class F>
  F* function(const std::string& name) {
    libraries_.push_back(std::make_unique<backend::c::Library>(path(name + ".so")));
    return reinterpret_cast<F*>(libraries_.back()->function(name));
  }
  /// Compiles and runs a program of the folder; 0 when it was compiled without a warning and
  /// returned 0.
  int run_c(const std::string& sources, const std::string& flags = "",
            const std::string& before = "", const std::string& libraries = "-lm") {
    const std::string command =
        fmt::format("cd {} && cc -std=c11 -O1 -ffp-contract=off -fwrapv -fno-strict-aliasing -Wall "
                    "-Wextra -Wpedantic -Werror {} {} -o program {} 2>words && {} ./program",
                    folder_.path().string(), flags, sources, libraries, before);
    const int code = std::system(command.c_str());
    EXPECT_EQ(code, 0) << read_file(folder_ / "words");
    return code;
  }

  TempFolder folder_;
  std::vector<std::unique_ptr<backend::c::Library>> libraries_;
};

inline void expect_close(const std::vector<float>& got, const Tensor& want,
                         float tolerance = 2e-5F) {
  const std::vector<float> values = want.to_vector<float>();
  ASSERT_EQ(got.size(), values.size());
  for (std::size_t i = 0; i < got.size(); ++i)
    ASSERT_NEAR(got[i], values[i], tolerance * (1 + std::abs(values[i]))) << i;
}

struct Mlp {
  nn::Linear in, out;
  Tensor operator()(const Tensor& x) const { return out(relu(in(x))); }
  EGRET_FIELDS(in, out)
};

/// A step of gradient descent on a linear layer; the layer's weight and bias are replaced.
inline auto linear_training_step() {
  return compile(
      [](nn::Linear& layer, const Tensor& input, const Tensor& wanted, const Tensor& rate) {
        const Tensor loss = (layer(input) - wanted).square().mean();
        const std::vector<Tensor> gradients = grad(loss, {layer.weight, *layer.bias});
        NoGrad off;
        layer.weight -= rate * gradients[0];
        *layer.bias -= rate * gradients[1];
        return loss;
      });
}

inline Mlp mlp(Generator& generator) {
  return {nn::Linear(20, 33, generator), nn::Linear(33, 7, generator)};
}

} // namespace egret::test
