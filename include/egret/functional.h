// Functions of tensors. All are compositions of the op table's primitives and intrinsics (op.h): a
// printed graph shows nothing else. docs/tensors.md lists them by subject.
#pragma once

#include "egret/functional/activations.h"
#include "egret/functional/convolutions.h"
#include "egret/functional/indices.h"
#include "egret/functional/layers.h"
#include "egret/functional/linalg.h"
#include "egret/functional/losses.h"
#include "egret/functional/math.h"
#include "egret/functional/order.h"
#include "egret/functional/packed.h"
#include "egret/functional/products.h"
#include "egret/functional/reductions.h"
#include "egret/functional/shapes.h"
#include "egret/functional/vision.h"
#include "egret/random.h"
