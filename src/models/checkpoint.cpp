#include "egret/checkpoint.h"

namespace egret::detail {

io::Metadata load_checkpoint(const std::filesystem::path& path,
                             const std::vector<NamedTensor>& tensors, const std::string& below) {
  io::SafetensorsFile file(path);
  nn::StateDict state;
  for (const auto& info : file.tensors())
    if (info.name.starts_with(below))
      state.emplace(info.name.substr(below.size()), file.read(info.name));
  try {
    nn::detail::load(tensors, state, true);
  } catch (const Error& error) {
    throw Error(error.kind(), path.string() + ": " + error.what());
  }
  return file.metadata();
}

} // namespace egret::detail
