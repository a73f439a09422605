// Everything that programs commonly use. The explicit graph door (graph.h, ir.h, passes.h,
// pattern.h) is apart.
#pragma once

#include "egret/checkpoint.h"
#include "egret/compile.h"
#include "egret/counters.h"
#include "egret/data.h"
#include "egret/device.h"
#include "egret/effort.h"
#include "egret/explain.h"
#include "egret/functional.h"
#include "egret/grad.h"
#include "egret/io.h"
#include "egret/log.h"
#include "egret/models.h"
#include "egret/nn.h"
#include "egret/optim.h"
#include "egret/paranoid.h"
#include "egret/random.h"
#include "egret/tensor.h"
#include "egret/tree.h"
