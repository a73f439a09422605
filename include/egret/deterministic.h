// Results that do not depend on how well a program was compiled.
#pragma once

namespace egret {

/// What is compiled from now on gives the same bits with every effort (docs/search.md lists
/// which changes keep results bitwise equal): no rule runs, neither before autodiff nor after it,
/// the graph is partitioned greedily, and kernels whose results depend on the order of their sums
/// keep the greedy schedule; only the others are searched. At the start as EGRET_DETERMINISTIC
/// says: 0 or 1.
void set_deterministic(bool deterministic);
bool deterministic();

} // namespace egret
