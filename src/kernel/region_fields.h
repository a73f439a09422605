// The members of regions, listed once for everything that goes over all of them (program_fields.h).
#pragma once

#include "kernel/program_fields.h"
#include "kernel/region.h"

namespace egret::kernel {

template <class A>
void members(A& a, Hole& x) {
  all_members(a, x.valid, x.fill);
}
template <class A>
void members(A& a, IndexMap& x) {
  all_members(a, x.dims, x.coords, x.holes);
}
template <class A>
void members(A& a, Axis& x) {
  all_members(a, x.extent, x.reduction, x.name);
}
template <class A>
void members(A& a, Operand& x) {
  all_members(a, x.dtype, x.shape, x.layout, x.role, x.alignment, x.name);
}
template <class A>
void members(A& a, Load& x) {
  all_members(a, x.source, x.number, x.component, x.map, x.indirect);
}
template <class A>
void members(A& a, BodyValue& x) {
  all_members(a, x.kind, x.dtype, x.constant, x.load, x.index, x.op, x.args);
}
template <class A>
void members(A& a, Stage& x) {
  all_members(a, x.kind, x.axes, x.over, x.monoid, x.acc_dtype, x.loads, x.body, x.yields,
              x.yield_dtypes);
}
template <class A>
void members(A& a, Output& x) {
  all_members(a, x.stage, x.component, x.dtype, x.shape, x.map, x.layout, x.alias, x.combine,
              x.indirect);
}
template <class A>
void members(A& a, Region& x) {
  all_members(a, x.name, x.axes, x.operands, x.stages, x.outputs, x.nodes);
}

} // namespace egret::kernel
