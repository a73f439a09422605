// Indices of types too narrow for the number of positions: none of them wraps, each says what its
// number in a wide type says.
#include "egret/compile.h"
#include "egret/functional.h"
#include "egret/functional/indices.h"
#include "egret/grad.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

namespace egret {
namespace {

using Use = std::function<Tensor(const Tensor& index)>;

/// The last numbers of each type, some that name no position, and some twice.
Tensor edges(DType type) {
  return tensor({0, 1, 127, 127, 126, 254, 255, -1, 5}).to(type);
}

void expect_as_wide(const std::string& what, const Use& use) {
  for (const DType type : {DType::I8, DType::U8}) {
    const Tensor narrow = edges(type), wide = narrow.to(DType::I64);
    const auto expected = use(wide).to_vector();
    EXPECT_EQ(use(narrow).to_vector(), expected) << what << " " << name_of(type);
    auto compiled = compile([&](const Tensor& index) { return use(index); });
    EXPECT_EQ(compiled(narrow).to_vector(), expected) << what << " " << name_of(type);
  }
}

TEST(NarrowIndices, NameThePositionsThatTheirNumbersName) {
  const Tensor table = arange(300).to(DType::F32).reshape({300, 1}) + zeros({300, 3});
  expect_as_wide("take", [&](const Tensor& i) { return take(table, i, 0); });
  expect_as_wide("take of 256",
                 [&](const Tensor& i) { return take(table.narrow(0, 0, 256), i, 0); });
  expect_as_wide("take of what is computed",
                 [&](const Tensor& i) { return take(relu(table) + 1, i, 0); });
  expect_as_wide("take of 256 that are computed",
                 [&](const Tensor& i) { return take(relu(table.narrow(0, 0, 256)) + 1, i, 0); });
  expect_as_wide("take of 128 that are computed",
                 [&](const Tensor& i) { return take(relu(table.narrow(0, 0, 128)) + 1, i, 0); });
  expect_as_wide("one_hot", [&](const Tensor& i) { return one_hot(i, 600); });
  expect_as_wide("index_add", [&](const Tensor& i) {
    return index_add(table, i, ones({9, 3}), 0);
  });
  expect_as_wide("index_put", [&](const Tensor& i) {
    return index_put(table, i, ones({9, 3}), 0);
  });
  expect_as_wide("segment_reduce", [&](const Tensor& i) {
    return segment_reduce(ones({9, 2}), i, 600);
  });
  expect_as_wide("segment_softmax", [&](const Tensor& i) {
    return segment_softmax(arange(9).to(DType::F32), i, 600);
  });
  expect_as_wide("take_along_dim", [&](const Tensor& i) {
    return take_along_dim(exp(table * 0.01), i.reshape({9, 1}), 0);
  });
  expect_as_wide("gather", [&](const Tensor& i) {
    return gather(exp(table * 0.01), 0, i.reshape({9, 1}));
  });
  expect_as_wide("scatter", [&](const Tensor& i) {
    return scatter(table, 0, i.reshape({9, 1}), ones({9, 1}), Scatter::Max);
  });
  expect_as_wide("gradient", [&](const Tensor& i) {
    Tensor x = exp(table * 0.01).detach();
    x.set_requires_grad();
    return grad((take(square(x), i, 0)).sum(), x);
  });
}

} // namespace
} // namespace egret
