// Each message of the tensor functions, thrown where the user called.
#include "egret/compile.h"
#include "egret/functional.h"
#include "egret/grad.h"
#include "egret/graph.h"
#include "runtime/runtime.h"
#include "support/message_cases.h"

#include <gtest/gtest.h>

#include <cmath>

namespace egret {
namespace {

using testing::expect_all;
using testing::expect_message;

const Tensor m23 = ones({2, 3}), f45 = ones({4, 5}), f4 = ones({4}), f0 = ones({});
const Tensor i4 = arange(4), b23 = ones({2, 3}, DType::Bool);

TEST(Messages, Products) {
  expect_all({
      {ErrorKind::Shape,
       "matmul: inner dimensions differ: [2,3] x [4,5] (3 != 4); the last dim of the left operand "
       "must equal the dim before the last of the right one",
       [] { matmul(m23, f45); }},
      {ErrorKind::Shape,
       "matmul: inner dimensions differ: [2,3] x [5,3] (3 != 5); did you mean matmul(a, "
       "b.transpose())?",
       [] {
         matmul(m23, ones({5, 3}));
       }},
      {ErrorKind::Shape, "matmul: inner dimensions differ: [2,3] x [4] (3 != 4)",
       [] { matmul(m23, f4); }},
      {ErrorKind::Shape, "matmul: [] x [2,3]: an operand is a single number; multiply with *",
       [] { matmul(f0, m23); }},
      {ErrorKind::Shape,
       "matmul (batch axes): shapes do not broadcast: [2] and [3] (2 != 3 at axis -1)",
       [] {
         matmul(ones({2, 1, 1}), ones({3, 1, 1}));
       }},
      {ErrorKind::DType, "matmul: takes numbers, got bool", [] { matmul(b23, b23.transpose()); }},
      {ErrorKind::Shape, "dot: [2,3] and [4]: both must have one axis", [] { dot(m23, f4); }},
      {ErrorKind::Shape, "outer: [2,3] and [4]: both must have one axis", [] { outer(m23, f4); }},
      {ErrorKind::Shape, "linear: weight [4,5] does not fit [2,3]; it must be [outputs, inputs]",
       [] { linear(m23, f45); }},
      {ErrorKind::Shape, "linear: bias [4] does not fit weight [5,3]; it must be [outputs]",
       [] {
         linear(m23, ones({5, 3}), f4);
       }},
  });
}

TEST(Messages, Elementwise) {
  expect_all({
      {ErrorKind::Shape,
       "add: shapes do not broadcast: [2,3] and [4,5] (2 != 4 at axis -2); counted from the last "
       "axis, dims must be equal or 1",
       [] { m23 + f45; }},
      {ErrorKind::Shape, "where: shapes do not broadcast: [4] and [2,3]",
       [] { where(f4 > 0, m23, 0); }},
      {ErrorKind::State, "mul: the tensor is empty", [] { Tensor() * m23; }},
      {ErrorKind::State, "relu: the tensor is empty", [] { relu(Tensor()); }},
      {ErrorKind::State, "shape: the tensor is empty", [] { Tensor().shape(); }},
      {ErrorKind::DType, "add: takes numbers, got bool and bool; use & | ^", [] { b23 + b23; }},
      {ErrorKind::DType, "sub: takes numbers, got bool and bool; use ^", [] { b23 - b23; }},
      {ErrorKind::DType, "neg: takes numbers, got bool", [] { -b23; }},
      {ErrorKind::DType, "bitwise_and: takes bools and integers, got f32", [] { m23& m23; }},
      {ErrorKind::DType, "shift_left: takes integers, got f32", [] { m23 << 1; }},
      {ErrorKind::DType, "where: the condition must be bool, got f32; compare it (x != 0)",
       [] { where(m23, 1, 0); }},
      {ErrorKind::Value, "clamp: neither a low nor a high bound is given",
       [] { clamp(m23, std::nullopt, std::nullopt); }},
      {ErrorKind::DType, "bitcast: f32 has 4 bytes an element and f64 has 8",
       [] { m23.bitcast(DType::F64); }},
  });
}

TEST(Messages, AxesAndReductions) {
  expect_all({
      {ErrorKind::Axis, "sum: axis 2 is out of range for [2,3]; axes go from -2 to 1",
       [] { m23.sum(2); }},
      {ErrorKind::Axis, "softmax: axis 0 is out of range for []; it has no axes",
       [] { softmax(f0, 0); }},
      {ErrorKind::Axis, "mean: axis 1 is given twice for [2,3]; name each axis once",
       [] {
         m23.mean({1, -1});
       }},
      {ErrorKind::Shape, "max: axis 1 of [2,0] is empty; at least one element is needed",
       [] {
         ones({2, 0}).max(1);
       }},
      {ErrorKind::Shape, "argmax: axis 0 of [0] is empty",
       [] {
         ones({0, 2}).argmax();
       }},
      {ErrorKind::Axis, "cumsum: axis -3 is out of range", [] { m23.cumsum(-3); }},
      {ErrorKind::Axis, "size: axis 5 is out of range", [] { m23.size(5); }},
  });
}

TEST(Messages, Shapes) {
  expect_all({
      {ErrorKind::Shape, "reshape: [2,3] has 6 elements and [4] has 4", [] { m23.reshape({4}); }},
      {ErrorKind::Shape,
       "reshape: [2,3] has 6 elements, which are no multiple of the 4 of [4,-1] without -1",
       [] {
         m23.reshape({4, -1});
       }},
      {ErrorKind::Shape, "reshape: [-1,-1] has more than one -1",
       [] {
         m23.reshape({-1, -1});
       }},
      {ErrorKind::Shape, "reshape: dim 0 of [-2,3] is negative; only -1 (to be found) may be",
       [] {
         m23.reshape({-2, 3});
       }},
      {ErrorKind::Shape, "reshape: -1 in [0,-1] cannot be found beside a dim of size 0",
       [] {
         ones({0}).reshape({0, -1});
       }},
      {ErrorKind::Axis, "permute: [0] names 1 axes and [2,3] has 2", [] { m23.permute({0}); }},
      {ErrorKind::Axis, "permute: axis 1 is given twice for [2,3]",
       [] {
         m23.permute({1, -1});
       }},
      {ErrorKind::Axis, "transpose: axis 2 is out of range for [2,3]", [] { m23.transpose(0, 2); }},
      {ErrorKind::Shape, "squeeze: axis 0 of [2,3] has size 2; only axes of size 1 can go",
       [] { m23.squeeze(0); }},
      {ErrorKind::Axis, "unsqueeze: axis 4 is out of range for [2,3]; places go from -3 to 2",
       [] { m23.unsqueeze(4); }},
      {ErrorKind::Shape, "expand: [2,3] to [2,4]: counted from the last axis",
       [] {
         m23.expand({2, 4});
       }},
      {ErrorKind::Axis, "flatten: axis 1 comes after axis 0 in [2,3]", [] { m23.flatten(1, 0); }},
      {ErrorKind::Value, "cat: no tensors are given", [] { cat(std::span<const Tensor>{}); }},
      {ErrorKind::Shape,
       "cat: [2,3] and [4,5] do not fit along axis 0; all other dims must be equal",
       [] {
         cat({m23, f45});
       }},
      {ErrorKind::Value, "column_stack: no tensors are given",
       [] { column_stack(std::span<const Tensor>{}); }},
      {ErrorKind::Shape, "column_stack: [2,3] and [4,5] do not fit along axis 1",
       [] {
         column_stack({m23, f45});
       }},
      {ErrorKind::Shape, "hstack: [2,3] and [4,5] do not fit along axis 1",
       [] {
         hstack({m23, f45});
       }},
      {ErrorKind::Shape, "vstack: [2,3] and [4,5] do not fit along axis 0",
       [] {
         vstack({m23, f45});
       }},
      {ErrorKind::Shape, "dstack: [2,3,1] and [4,5,1] do not fit along axis 2",
       [] {
         dstack({m23, f45});
       }},
      {ErrorKind::Shape, "stack: shapes differ: [2,3] and [4,5]",
       [] {
         stack({m23, f45});
       }},
      {ErrorKind::Value, "split: parts of length 0 are not possible", [] { split(m23, 0); }},
      {ErrorKind::Value, "chunk: -1 parts are not possible", [] { chunk(m23, -1); }},
      {ErrorKind::Shape, "pad: [1] before and [1,1] after for [2,3]; one for each axis is needed",
       [] {
         pad(m23, {1}, {1, 1});
       }},
      {ErrorKind::Value, "pad: [-1] before and [0] after: amounts must not be negative",
       [] { pad(f4, {-1}, {0}); }},
      {ErrorKind::Shape, "repeat: [2] names 1 axes and [2,3] has more", [] { repeat(m23, {2}); }},
      {ErrorKind::Value, "repeat: [-2] has a negative count", [] { repeat(f4, {-2}); }},
  });
}

TEST(Messages, IndicesAndSlices) {
  Tensor x = ones({2, 3});
  expect_all({
      {ErrorKind::Index, "index: position 2 is out of range for axis 0 of [2,3] (size 2)",
       [] { m23[2]; }},
      {ErrorKind::Index, "index: position -4 is out of range for axis 1 of [2,3] (size 3)",
       [] {
         m23[{0, -4}];
       }},
      {ErrorKind::Index, "index: 3 indices for [2,3], which has 2 axes",
       [] {
         m23[{0, 0, 0}];
       }},
      {ErrorKind::Index, "index: more than one ellipsis",
       [] {
         m23[{Ellipsis{}, Ellipsis{}}];
       }},
      {ErrorKind::Index, "index: a slice with step 0 goes nowhere", [] { m23[Slice({}, {}, 0)]; }},
      {ErrorKind::Index, "select: position 3 is out of range for axis 1", [] { m23.select(1, 3); }},
      {ErrorKind::Index, "narrow: 3 elements from 1 do not lie within axis 1 of [2,3] (size 3)",
       [] { m23.narrow(1, 1, 3); }},
      {ErrorKind::Index, "narrow: 1 elements from -4 do not lie within axis 1 of [2,3] (size 3)",
       [] { m23.narrow(1, -4, 1); }},
      {ErrorKind::Shape, "assign: [4] does not broadcast to [3], the shape of what is indexed",
       [&] { x.assign({0}, f4); }},
      {ErrorKind::Shape, "assign: [3,3] does not broadcast to [2,3]",
       [&] {
         x.assign(ones({3, 3}));
       }},
      {ErrorKind::Shape, "+=: [4,2,3] does not broadcast to [2,3], the shape of what is updated",
       [&] {
         x += ones({4, 2, 3});
       }},
      {ErrorKind::DType, "embedding: the indices must be integers, got f32",
       [] { embedding(m23, f4); }},
      {ErrorKind::Shape, "embedding: weight is [4]; it must be [entries, width]",
       [] { embedding(f4, i4); }},
      {ErrorKind::DType, "take: the indices must be integers", [] { take(m23, f4, 0); }},
      {ErrorKind::Shape, "gather: index [4] does not fit data [2,3] along axis 0",
       [] { gather(m23, 0, i4); }},
      {ErrorKind::Shape, "index_put: updates [4] do not broadcast to [4,3]",
       [] { index_put(m23, i4, f4, 0); }},
      {ErrorKind::Value, "one_hot: -1 classes", [] { one_hot(i4, -1); }},
      {ErrorKind::Shape, "tril: [4] has no last two axes", [] { tril(f4); }},
      {ErrorKind::Value, "causal_mask: -1 queries and 2 keys", [] { causal_mask(-1, 2); }},
  });
}

TEST(Messages, Creation) {
  expect_all({
      {ErrorKind::Shape, "tensor: 3 values do not fill [2,2], which has 4 elements",
       [] {
         tensor(std::vector<float>{1, 2, 3}, Shape{2, 2});
       }},
      {ErrorKind::Shape, "tensor: 3 values do not fill [2,2], which has 4 elements",
       [] {
         tensor({1, 2, 3}, Shape{2, 2});
       }},
      {ErrorKind::Shape, "tensor: rows differ in length (2 and 1)",
       [] {
         tensor({{1, 2}, {3}});
       }},
      {ErrorKind::Shape, "from_bytes: 3 bytes do not fill f32[1]",
       [] { from_bytes(DType::F32, {1}, std::vector<std::byte>(3)); }},
      {ErrorKind::Shape, "zeros: [-1] has a negative dim", [] { zeros({-1}); }},
      {ErrorKind::Value, "arange: a step of 0 never reaches the end", [] { arange(0, 5, 0); }},
      {ErrorKind::Value, "arange: from 0 to inf in steps of 1 has no finite number of elements",
       [] { arange(0.0, INFINITY, 1.0); }},
      {ErrorKind::Value, "linspace: -1 elements", [] { linspace(0, 1, -1); }},
      {ErrorKind::DType, "linspace: i64 is no float type", [] { linspace(0, 1, 2, DType::I64); }},
      {ErrorKind::Value, "eye: -1 rows", [] { eye(-1); }},
  });
}

TEST(Messages, LayersLossesAndRandomNumbers) {
  Generator g(1);
  AttentionOptions masked;
  masked.mask = ones({7, 7}, DType::Bool);
  expect_all({
      {ErrorKind::Value, "dropout: p is 1.5; a probability lies between 0 and 1",
       [&] { dropout(m23, 1.5, g); }},
      {ErrorKind::Shape, "layer_norm: weight [4] does not fit [2,3]; it must equal its last dims",
       [] { layer_norm(m23, f4); }},
      {ErrorKind::Shape, "layer_norm: bias [4] does not fit weight [3]",
       [] { layer_norm(m23, ones({3}), f4); }},
      {ErrorKind::DType, "layer_norm: takes floats, got i64", [] { layer_norm(i4, f4); }},
      {ErrorKind::Shape, "rms_norm: weight [4] does not fit [2,3]", [] { rms_norm(m23, f4); }},
      {ErrorKind::Shape, "scaled_dot_product_attention: got [4]; operands are [..., tokens, width]",
       [] { scaled_dot_product_attention(f4, f4, f4); }},
      {ErrorKind::Shape,
       "scaled_dot_product_attention: queries [2,3] and keys [4,5] differ in width (3 != 5)",
       [] { scaled_dot_product_attention(m23, f45, f45); }},
      {ErrorKind::Shape,
       "scaled_dot_product_attention: keys [2,3] and values [4,5] differ in number (2 != 4)",
       [] { scaled_dot_product_attention(m23, m23, f45); }},
      {ErrorKind::Shape,
       "scaled_dot_product_attention: mask [7,7] does not broadcast to the scores' [2,2]",
       [&] { scaled_dot_product_attention(m23, m23, m23, masked); }},
      {ErrorKind::Shape, "cross_entropy: targets [4] do not fit [2,3]; they must be [2]",
       [] { cross_entropy(m23, i4); }},
      {ErrorKind::DType, "cross_entropy: targets must be integers, got f32",
       [] { cross_entropy(m23, ones({2})); }},
      {ErrorKind::DType, "cross_entropy: takes floats, got i64", [] { cross_entropy(i4, i4); }},
      {ErrorKind::Value, "cross_entropy: label smoothing is 2; it lies between 0 and 1",
       [] { cross_entropy(m23, arange(2), {.label_smoothing = 2}); }},
      {ErrorKind::Shape, "nll_loss: got a single number; the last axis holds the classes",
       [] { nll_loss(f0, scalar(1)); }},
      {ErrorKind::Shape, "mse_loss: shapes differ: [2,3] and [4]; losses do not broadcast",
       [] { mse_loss(m23, f4); }},
      {ErrorKind::DType, "rand: i32 is no float type; use randint or bernoulli",
       [&] { rand({2}, g, DType::I32); }},
      {ErrorKind::DType, "randint: f32 is no integer type",
       [&] { randint({2}, 0, 5, g, DType::F32); }},
      {ErrorKind::Value, "randint: [5, 5) must hold between 1 and 2^32 integers",
       [&] { randint({2}, 5, 5, g); }},
      {ErrorKind::Value, "uniform: [2, 1) is no finite range", [&] { uniform({2}, 2, 1, g); }},
      {ErrorKind::Value, "normal: mean 0 and deviation -1", [&] { normal({2}, 0, -1, g); }},
      {ErrorKind::Value, "bernoulli: p is -0.5", [&] { bernoulli({2}, -0.5, g); }},
      {ErrorKind::Shape, "random: [-3] is no possible shape", [&] { rand({-3}, g); }},
  });
}

TEST(Messages, ReadingAndGradients) {
  Tensor leaf = ones({2}).set_requires_grad();
  const Tensor spent = leaf.sum();
  spent.backward();
  const Tensor many[] = {leaf.sum()}, inputs[] = {leaf}, two[] = {f4, f4};
  expect_all({
      {ErrorKind::Shape, "item: [2,3] has 6 elements; one is needed", [] { m23.item(); }},
      {ErrorKind::State, "item: the tensor is empty", [] { Tensor().item(); }},
      {ErrorKind::State,
       "backward: the value does not depend on any tensor that requires a gradient",
       [] { f0.backward(); }},
      {ErrorKind::Shape, "backward: [2] has more than one element; give a seed of its shape",
       [&] { (leaf * 2).backward(); }},
      {ErrorKind::Shape, "backward: the seed is [4] and the value [2]",
       [&] { (leaf * 2).backward(f4); }},
      {ErrorKind::DType, "backward: the seed is i64 and the value f32",
       [&] { (leaf * 2).backward(arange(2)); }},
      {ErrorKind::State, "backward: it was called before on this value", [&] { spent.backward(); }},
      {ErrorKind::State, "grad: backward() has let the recipe of output 0 go",
       [&] { grad(spent, leaf); }},
      {ErrorKind::State, "grad: input 0 (f32[4]) does not require a gradient",
       [&] { grad(leaf.sum(), f4); }},
      {ErrorKind::Value, "grad: 1 outputs and 2 seeds", [&] { grad(many, inputs, two); }},
      {ErrorKind::DType, "set_requires_grad: i64 has no gradients",
       [] { arange(2).set_requires_grad(); }},
      {ErrorKind::State, "set_requires_grad: this value is computed from tensors that require",
       [&] { (leaf * 2).set_requires_grad(false); }},
      {ErrorKind::State, "set_grad: this is no leaf that requires a gradient",
       [&] { (leaf * 2).set_grad(leaf); }},
      {ErrorKind::Shape, "set_grad: the gradient is f32[4] and the tensor f32[2]",
       [&] { leaf.set_grad(f4); }},
      {ErrorKind::State, "*=: in-place update of a leaf that requires a gradient",
       [&] { leaf *= 2; }},
      {ErrorKind::DType, "gradcheck: inputs must be f64, got f32",
       [] { gradcheck([](const Tensor& x) { return x; }, f4); }},
  });
}

TEST(Messages, CompiledFunctions) {
  auto reads = compile([](const Tensor& x) { return x * x.sum().item(); }, {.name = "reader"});
  auto changes = compile([](const Tensor& x) {
    Tensor y = x;
    y += 1;
  });
  auto grows = compile([](std::vector<Tensor>& list) { list.push_back(list[0] * 2); });
  Tensor leaked;
  auto leaks = compile([&](const Tensor& x) { leaked = x * 2; });
  std::vector<Tensor> list = {ones({2})};
  leaks(f4);
  expect_all({
      {ErrorKind::State,
       "item: the value is not known while reader is traced, or after: it stands for what every "
       "call computes anew (return it, or assign it to a tensor that lives outside; where() "
       "chooses by a value)",
       [&] { reads(f4); }},
      {ErrorKind::State,
       "compiled function: the function changes argument0, which it takes by value or const "
       "reference; take it by non-const reference",
       [&] { changes(f4); }},
      {ErrorKind::State,
       "compiled function: the function changes the structure of its arguments (a container grew",
       [&] { grows(list); }},
      {ErrorKind::State, "to_vector: the value is not known while compiled function is traced",
       [&] { leaked.to_vector(); }},
  });
  EXPECT_EQ(f4.sum().item(), 4); // all tensors are as they were
  EXPECT_EQ(list[0].sum().item(), 2);
}

TEST(Messages, GradientsThatCannotGoOn) {
  Tensor w = ones({2}).set_requires_grad();
  auto forward = compile([&](const Tensor& x) { return x * w; }, {.name = "forward"});
  auto inside = compile([](const Tensor& x) { x.sum().backward(); }, {.name = "inside"});
  const Tensor h = forward(ones({2})), root = (w * 2).sum();
  EXPECT_TRUE(h.requires_grad());
  root.backward();
  root.eval();
  expect_all({
      {ErrorKind::State,
       "backward: a value on the way (f32[2]) is the result of a compiled function, which carries "
       "no recipe; call backward() inside the function, or detach() the result",
       [&] { (h * w).sum().backward(); }},
      {ErrorKind::State,
       "backward: `argument0` (f32[2]) was computed from tensors that require gradients, outside "
       "of "
       "inside; detach() it before the call",
       [&] { inside(w * 3); }},
      {ErrorKind::State, "backward: backward() was called before on a value on the way (f32[])",
       [&] { (root * 2).backward(); }},
  });
  w.zero_grad();
  (h.detach() * w).sum().backward();
  EXPECT_EQ(w.grad().to_vector(), (std::vector<float>{1, 1}));
}

TEST(Messages, ExplicitGraphs) {
  Graph a, b;
  Tensor x = a.tensor({2}, DType::F32, "x"), y = b.tensor({2}, DType::F32, "y");
  Tensor z = x + 1, plain = ones({2});
  expect_all({
      {ErrorKind::State,
       "add: one operand belongs to a Graph, the other to a Graph; they do not mix",
       [&] { x + y; }},
      {ErrorKind::State,
       "to_vector: the value depends on input `x` of a Graph, which runs when told to",
       [&] { z.data(); }},
      {ErrorKind::State, "Graph: nothing is to be computed; mark what you need with retrieve()",
       [&] { a.execute(); }},
      {ErrorKind::State, "Graph: input `x` has no value; set() it before every execute()",
       [&] {
         z.retrieve();
         a.execute();
       }},
      {ErrorKind::State, "set: this tensor is computed; only inputs of a Graph can be set",
       [&] {
         z.set({1, 2});
       }},
      {ErrorKind::Shape, "set: 3 values do not fill [2]",
       [&] {
         x.set({1, 2, 3});
       }},
      {ErrorKind::Shape, "set: the value is [4] and the input [2]", [&] { x.set(f4); }},
      {ErrorKind::State, "set: the value belongs to a Graph", [&] { x.set(y); }},
      {ErrorKind::State, "retrieve: this tensor belongs to no Graph", [&] { plain.retrieve(); }},
      {ErrorKind::Shape, "Graph::tensor: [-1] has a negative dim", [&] { a.tensor({-1}); }},
      {ErrorKind::State, "retrieve: the Graph of this tensor is gone",
       [] {
         Tensor orphan = Graph().tensor({2});
         orphan.retrieve();
       }},
  });
}

TEST(Messages, MemoryHasALimitAndTheProgramGoesOn) {
  auto& pool = runtime::Runtime::instance().pool();
  const Tensor small = ones({16}).eval();
  pool.trim();
  pool.set_limit(1 << 16);
  expect_message({ErrorKind::Memory, "memory: ", [] { ones({1 << 20}).eval(); }});
  EXPECT_EQ((small + 1).sum().item(), 32);
  pool.set_limit(0);
  EXPECT_EQ(ones({1 << 20}).sum().item(), 1 << 20);
}

TEST(Messages, MemoryThatCannotBeHadIsATypedError) {
  expect_message({ErrorKind::Memory, "", [] { ones({std::int64_t{1} << 45}).eval(); }});
  EXPECT_EQ(ones({4}).sum().item(), 4);
}

} // namespace
} // namespace egret
