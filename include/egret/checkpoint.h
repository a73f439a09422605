// Checkpoints: any parameter tree (model, optimizer, generator) in a safetensors file, names as
// nn::state_dict gives them.
//
// clang-format off
//   struct Training {
//     models::Gpt model;
//     optim::AdamW optimizer;
//     Generator generator;
//     EGRET_FIELDS(model, optimizer, generator)
//   };
//   save_checkpoint("run.safetensors", training, {{"step", "1000"}});
//   Metadata metadata = load_checkpoint("run.safetensors", training);
// clang-format on
//
// A training that is saved, loaded and continued gives the same bits as one that was never stopped.
#pragma once

#include "egret/io.h"
#include "egret/nn.h"

#include <filesystem>
#include <string>

namespace egret {

/// Writes all tensors of the tree, whole or not at all.
template <class T>
void save_checkpoint(const std::filesystem::path& path, T& tree,
                     const io::Metadata& metadata = {}) {
  io::save_safetensors(path, nn::state_dict(tree), metadata);
}

namespace detail {
io::Metadata load_checkpoint(const std::filesystem::path& path,
                             const std::vector<NamedTensor>& tensors, const std::string& below);
}

/// Puts the file's tensors into the tree. Names and shapes must fit exactly: Error(Value),
/// Error(Shape), with the file's name, and nothing changed. Returns the metadata.
template <class T>
io::Metadata load_checkpoint(const std::filesystem::path& path, T& tree) {
  return detail::load_checkpoint(path, named_tensors(tree), "");
}

/// Loads one part of a checkpoint: the tensors named "<part>.<name>" into the tree's <name>. Other
/// tensors are not read.
template <class T>
io::Metadata load_checkpoint_part(const std::filesystem::path& path, T& tree,
                                  const std::string& part) {
  return detail::load_checkpoint(path, named_tensors(tree), part + ".");
}

} // namespace egret
