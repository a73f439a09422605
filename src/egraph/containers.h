// Containers: what their contents mean, and how they follow the classes inside them.
#pragma once

#include "egraph/engine.h"

#include <span>
#include <string>
#include <utility>
#include <vector>

namespace egret::egraph {

// The words of a container, by sort. Vec: its elements. Set: its elements, sorted. MultiSet: the
// same with repeats. Map: key, value, key, value ..., sorted by key. Pair: two. Either: 0 or 1 for
// left or right, then what it holds. Maybe: one or none. Fn: what it names (a function's number
// times 2, or a primitive's times 2 plus 1), then its bound arguments.

/// Brings contents to that form: sorted, and without repeats where there are none.
void normalize(SortKind kind, std::vector<Value>& content);

/// Whether a word of the content is a value (the first of a function value or an Either is not).
inline bool is_element(const Sort& sort, std::size_t word) {
  return word != 0 || (sort.kind != SortKind::Fn && sort.kind != SortKind::Either);
}
/// The sort of a word that is a value.
SortId element_sort(const Engine& engine, const Sort& sort, std::span<const Value> content,
                    std::size_t word);
/// How a container is written: the primitive that makes it and that one's arguments.
void container_parts(const Engine& engine, const Sort& sort, std::span<const Value> content,
                     std::string& name, std::vector<std::pair<SortId, Value>>& parts);

/// Re-interns every container that holds something which is no longer canonical: one of the classes
/// `displaced`, or a container that moved itself. Returns, by sort, the containers that moved.
std::vector<std::vector<Value>> rebuild_containers(Engine& engine,
                                                   const std::vector<Value>& displaced);

/// Declares the primitives of a container sort that was just added.
void add_container_primitives(Signature& signature, SortId sort);
void add_fn_primitives(Signature& signature, SortId sort);
/// Primitives that take function values (map, filter, reduce, match ...) and that a new sort, of
/// functions or of containers, makes possible.
void add_mapping_primitives(Signature& signature, SortId added);

/// Something that a function value can stand for.
struct FnTarget {
  Value word = 0;            ///< the first word of the function value
  std::vector<SortId> bound; ///< the sorts of the arguments that are bound
};
/// What `name` can mean as a value of the function sort `sort` with its first `bound` arguments
/// given.
std::vector<FnTarget> fn_targets(const Signature& signature, std::string_view name,
                                 const Sort& sort, std::size_t bound);
/// How (unstable-fn "name" ...) says which of these it means, in its first argument.
std::string encode_fn_target(std::string_view name, const FnTarget& target);
/// The sort of bound argument `i` of a primitive that is a value of function sort `sort`.
SortId bound_sort(const Primitive& primitive, const Sort& sort, std::size_t i);

/// Applies a function value; false if that fails. In a query nothing is built: an absent term
/// fails.
bool apply_function(PrimContext& context, Value function, SortId fn_sort,
                    std::span<const Value> args, Value& out);

} // namespace egret::egraph
