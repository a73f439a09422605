// Containers: what their contents mean, and how they follow the classes inside them.
#pragma once

#include "egraph/engine.h"

#include <span>
#include <string>
#include <utility>
#include <vector>

namespace egret::egraph {

// The words of a container, by sort. Vec: its elements. Set: its elements, sorted. MultiSet: the
// same with repeats. Map: key, value, key, value ..., sorted by key. Pair: two. Fn: what it names,
// then its bound arguments.

/// Brings contents to that form: sorted, and without repeats where there are none.
void normalize(SortKind kind, std::vector<Value>& content);

/// Whether a word of the content is a value (the first of a function value is not).
inline bool is_element(const Sort& sort, std::size_t word) {
  return sort.kind != SortKind::Fn || word != 0;
}
/// The sort of a word that is a value.
SortId element_sort(const Engine& engine, const Sort& sort, std::span<const Value> content,
                    std::size_t word);
/// How a container is written: the primitive that makes it and that one's arguments.
void container_parts(const Engine& engine, const Sort& sort, std::span<const Value> content,
                     std::string& name, std::vector<std::pair<SortId, Value>>& parts);

/// Re-interns every container that holds something which is no longer canonical.
void rebuild_containers(Engine& engine);

/// Declares the primitives of a container sort that was just added.
void add_container_primitives(Signature& signature, SortId sort);
void add_fn_primitives(Signature& signature, SortId sort);
/// Mappings over containers that a new sort (of functions or of containers) makes possible.
void add_mapping_primitives(Signature& signature, SortId added);

/// Applies a function value; false if that fails. In a query nothing is built: an absent term
/// fails.
bool apply_function(PrimContext& context, Value function, SortId fn_sort,
                    std::span<const Value> args, Value& out);

} // namespace egret::egraph
