// Layers: plain structs of tensors, made from the public functions only.
//
//   struct Classifier {
//     nn::Linear hidden, out;
//     Tensor operator()(const Tensor& x) const { return out(relu(hidden(x))); }
//     EGRET_FIELDS(hidden, out)
//   };
//
// A module is any tree of tensors (tree.h). Its fields give its parameters dotted names,
// "hidden.weight". Copies of a module share their parameters, as copies of a tensor do. There is no
// training mode: a generator is given to what is being trained, and only then do layers draw
// (Dropout) and update statistics (BatchNorm).
#pragma once

#include "egret/nn/attention.h"
#include "egret/nn/convolution.h"
#include "egret/nn/init.h"
#include "egret/nn/layers.h"
#include "egret/nn/low_rank.h"
#include "egret/nn/module.h"
#include "egret/nn/recurrent.h"
