// Any bytes as the checkpoint of a training loop, and as that of a text model: an Error, or a state
// with the shapes that it had.
#include "memory_file.h"

#include "egret/text_model.h"
#include "egret/training.h"

#include <cstdlib>

namespace {

struct State {
  egret::Tensor value = egret::ones({2});
  EGRET_FIELDS(value)
};

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace egret;
  MemoryFile file(data, size);
  State state;
  train::Loop loop(state, {.checkpoint = file.path()});
  try {
    loop.resume();
    if (loop.step() < 0 || state.value.to_vector().size() != 2)
      std::abort();
  } catch (const Error&) {
    if (loop.step() != 0)
      std::abort();
  }
  try {
    const models::TextModel model = models::load_text_model(file.path());
    if (model.shape.vocabulary != model.codec.size())
      std::abort();
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::File)
      std::abort();
  }
  return 0;
}
