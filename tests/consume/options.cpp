// Structures of options take a few fields by name, and a compiler that warns of fields without a
// value (-Wextra of GCC) has nothing to say.
#include <egret/builders.h>
#include <egret/egret.h>
#include <egret/serve.h>

using namespace egret;

std::size_t named_fields() {
  const KernelClaim claim{.schedule = "generic"};
  const CompileOptions compiled{.dims = {{.name = "n", .at = {{0, 0}}}}};
  const models::LanguageModelOptions model{.context = 64};
  const models::GenerateOptions text{.max_new = 4};
  const models::TextEncoderOptions encoder{.device = "cpu"};
  const models::ImageModelOptions image{.device = "cpu"};
  const models::SpeechOptions speech{.device = "cpu"};
  const models::QuantizeOptions quantized{.group = 32};
  const AttentionOptions attention{.causal = true};
  const CrossEntropyOptions classes{.label_smoothing = 0.1};
  const BinaryCrossEntropyOptions binary{.weight = {}};
  const MaxPoolOptions pool{.padding = 1};
  const EmbeddingBagOptions bag{.mode = Bag::Sum};
  const finetune::Options tuned{.epochs = 2};
  const serve::ServeOptions served{.port = 8080};
  const training::LoopOptions loop{.steps = 3};
  const ChatMessage message{.role = "user"};
  const ChatOptions chat{.generation_prompt = true};
  return sizeof(claim) + sizeof(compiled) + sizeof(model) + sizeof(text) + sizeof(encoder) +
         sizeof(image) + sizeof(speech) + sizeof(quantized) + sizeof(attention) + sizeof(classes) +
         sizeof(binary) + sizeof(pool) + sizeof(bag) + sizeof(tuned) + sizeof(served) +
         sizeof(loop) + sizeof(message) + sizeof(chat);
}
