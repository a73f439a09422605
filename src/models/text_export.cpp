// A text model in the layout of Hugging Face's hub. It is a GPT-2: the same blocks, with tanh-GELU,
// learned positions and norms first; its tokens are single bytes.
#include "egret/text_model.h"

#include "models/language/folder.h"
#include "models/language/hub_config.h"
#include "support/fail.h"
#include "text/bytes_alphabet.h"

#include <nlohmann/json.hpp>

#include <cmath>

namespace egret::models {

using namespace language;
using nlohmann::ordered_json;

namespace {

LanguageConfig config_of(const TextModel& model, const Architecture& row) {
  const GptOptions& shape = model.shape;
  LanguageConfig c;
  c.architecture = row.name;
  c.vocabulary = shape.vocabulary;
  c.width = shape.width;
  c.layers = shape.layers;
  c.heads = c.kv_heads = shape.heads;
  c.head_size = shape.width / shape.heads;
  c.hidden =
      model.gpt.blocks.empty() ? 4 * shape.width : model.gpt.blocks[0].linear1.weight.size(0);
  c.context = shape.context;
  c.tied = shape.tied;
  c.norm_eps = model.gpt.norm.eps;
  c.activation = nn::Activation::GeluTanh;
  c.attention_scale = 1 / std::sqrt(static_cast<double>(c.head_size));
  c.sliding.assign(static_cast<std::size_t>(shape.layers), false);
  return c;
}

const Tensor& of_whole(const Gpt& gpt, const TensorName& name) {
  switch (name.role) {
  case Role::TokenEmbedding:
    return gpt.token_embedding.weight;
  case Role::PositionEmbedding:
    return gpt.position_embedding.weight;
  case Role::Head:
    return gpt.head->weight;
  default:
    return name.bias ? gpt.norm.bias : gpt.norm.weight;
  }
}

const Tensor& of_block(const nn::TransformerBlock& block, const TensorName& name) {
  const auto of_layer = [&](const nn::Linear& layer) -> const Tensor& {
    return name.bias ? *layer.bias : layer.weight;
  };
  switch (name.role) {
  case Role::InputNorm:
    return name.bias ? block.norm1.bias : block.norm1.weight;
  case Role::MlpNorm:
    return name.bias ? block.norm2.bias : block.norm2.weight;
  case Role::Qkv:
    return name.bias ? block.self_attn.in_proj_bias : block.self_attn.in_proj_weight;
  case Role::Output:
    return of_layer(block.self_attn.out_proj);
  case Role::Up:
    return of_layer(block.linear1);
  default:
    return of_layer(block.linear2);
  }
}

/// Whether a Gpt has it, of what models of the architecture may have.
bool has(const Gpt& gpt, const TensorName& name) {
  switch (name.role) {
  case Role::TokenEmbedding:
  case Role::PositionEmbedding:
    return name.layer < 0 && !name.bias;
  case Role::Head:
    return name.layer < 0 && !name.bias && gpt.head;
  case Role::FinalNorm:
    return name.layer < 0;
  case Role::InputNorm:
  case Role::MlpNorm:
  case Role::Qkv:
  case Role::Output:
  case Role::Up:
  case Role::Down:
    return name.layer >= 0;
  default:
    return false;
  }
}

/// Every parameter by its name in safetensors, matrices of layers as [in, out].
io::TensorMap tensors_of(const Gpt& gpt, const Architecture& row) {
  io::TensorMap tensors;
  const auto layers = static_cast<std::int64_t>(gpt.blocks.size());
  for (const TensorName& name : tensor_names(row, layers, std::string(row.prefix)))
    if (has(gpt, name)) {
      const Tensor value =
          (name.layer < 0 ? of_whole(gpt, name)
                          : of_block(gpt.blocks[static_cast<std::size_t>(name.layer)], name))
              .detach();
      const bool turned = row.transposed && name.layer >= 0 && value.rank() == 2;
      tensors.emplace(name.safetensors, turned ? value.transpose() : value);
    }
  return tensors;
}

/// Character i of the alphabet is token i: byte-level BPE without merges.
ordered_json tokenizer_of(const data::CharCodec& codec) {
  ordered_json vocabulary = ordered_json::object();
  for (std::size_t i = 0; i < codec.alphabet().size(); ++i)
    vocabulary[text::to_alphabet(codec.alphabet().substr(i, 1))] = i;
  const ordered_json bytes = {{"type", "ByteLevel"},
                              {"add_prefix_space", false},
                              {"trim_offsets", true},
                              {"use_regex", false}};
  return {{"version", "1.0"},
          {"truncation", nullptr},
          {"padding", nullptr},
          {"added_tokens", ordered_json::array()},
          {"normalizer", nullptr},
          {"pre_tokenizer", bytes},
          {"post_processor", nullptr},
          {"decoder", bytes},
          {"model",
           {{"type", "BPE"},
            {"dropout", nullptr},
            {"unk_token", nullptr},
            {"continuing_subword_prefix", nullptr},
            {"end_of_word_suffix", nullptr},
            {"fuse_unk", false},
            {"byte_fallback", false},
            {"ignore_merges", false},
            {"vocab", std::move(vocabulary)},
            {"merges", ordered_json::array()}}}};
}

/// What was said, line by line: a text model knows no roles. Without a line end in the alphabet
/// messages follow each other as they are.
const char* chat_template_of(const data::CharCodec& codec) {
  return codec.alphabet().find('\n') != std::string::npos
             ? "{% for message in messages %}{{ message['content'] + '\\n' }}{% endfor %}"
             : "{% for message in messages %}{{ message['content'] }}{% endfor %}";
}

} // namespace

void export_text_model(const TextModel& model, const std::filesystem::path& out) {
  require_new_folder(out);
  const Architecture& row = architecture_of("gpt2", false, "export_text_model");
  const LanguageConfig config = config_of(model, row);
  const io::TensorMap tensors = tensors_of(model.gpt, row);
  const nlohmann::json keys = nlohmann::json::object();
  const HubModel hub{
      .row = row, .config = config, .keys = keys, .dtype = tensors.begin()->second.dtype()};
  const auto text = [](const ordered_json& file) { return file.dump(2) + "\n"; };
  const ordered_json tokenizer_config = {{"tokenizer_class", "PreTrainedTokenizerFast"},
                                         {"clean_up_tokenization_spaces", false},
                                         {"model_max_length", config.context},
                                         {"chat_template", chat_template_of(model.codec)}};
  const SampleOptions sample;
  const ordered_json generation = {
      {"do_sample", true}, {"temperature", sample.temperature}, {"top_k", sample.top_k}};
  std::vector<io::TensorInfo> infos;
  for (const auto& [name, value] : tensors)
    infos.push_back({name, value.dtype(), value.sizes(), 0, 0});
  ModelFolderWriter writer(out,
                           {{"tokenizer.json", text(tokenizer_of(model.codec))},
                            {"tokenizer_config.json", text(tokenizer_config)},
                            {"generation_config.json", text(generation)},
                            {"config.json", text(hub_config(hub, "export_text_model"))}},
                           std::move(infos));
  for (const auto& [name, value] : tensors)
    writer.write(name, value);
  writer.commit();
}

} // namespace egret::models
