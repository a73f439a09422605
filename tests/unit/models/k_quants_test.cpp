// Matrices of GGUF's k-quants stay packed in memory, and give the logits of the floats that they
// stand for.
#include "egret/language_model.h"
#include "support/files.h"
#include "support/language_models.h"

#include <gtest/gtest.h>

namespace egret::models {
namespace {

/// A Llama of one layer whose rows are whole blocks of 256.
nlohmann::json wide_model() {
  const std::string layer = "model.layers.0.";
  const nlohmann::json square = {{"shape", {256, 256}}, {"scale", 0.1}, {"offset", 0}};
  const nlohmann::json norm = {{"shape", {256}}, {"scale", 0.3}, {"offset", 1}};
  nlohmann::json tensors = {
      {"model.embed_tokens.weight", {{"shape", {64, 256}}, {"scale", 1}, {"offset", 0}}},
      {"lm_head.weight", {{"shape", {64, 256}}, {"scale", 0.2}, {"offset", 0}}},
      {"model.norm.weight", norm},
      {layer + "input_layernorm.weight", norm},
      {layer + "post_attention_layernorm.weight", norm}};
  nlohmann::json names = {{"model.embed_tokens.weight", "token_embd.weight"},
                          {"lm_head.weight", "output.weight"},
                          {"model.norm.weight", "output_norm.weight"},
                          {layer + "input_layernorm.weight", "blk.0.attn_norm.weight"},
                          {layer + "post_attention_layernorm.weight", "blk.0.ffn_norm.weight"}};
  for (const auto& [part, gguf] : {std::pair{"self_attn.q_proj", "attn_q"},
                                   {"self_attn.k_proj", "attn_k"},
                                   {"self_attn.v_proj", "attn_v"},
                                   {"self_attn.o_proj", "attn_output"},
                                   {"mlp.gate_proj", "ffn_gate"},
                                   {"mlp.up_proj", "ffn_up"},
                                   {"mlp.down_proj", "ffn_down"}}) {
    tensors[layer + part + ".weight"] = square;
    names[layer + part + ".weight"] = std::string("blk.0.") + gguf + ".weight";
  }
  return {{"config",
           {{"model_type", "llama"},
            {"vocab_size", 64},
            {"hidden_size", 256},
            {"intermediate_size", 256},
            {"num_hidden_layers", 1},
            {"num_attention_heads", 4},
            {"num_key_value_heads", 4},
            {"max_position_embeddings", 64}}},
          {"tensors", tensors},
          {"seed", 77},
          {"gguf_architecture", "llama"},
          {"gguf_names", names}};
}

TEST(KQuants, StayPackedAndGiveTheLogitsOfTheirValues) {
  test::TempFolder folder;
  test::write_gguf(folder / "m.gguf", wide_model(), io::GgmlType::Q4_K);
  LanguageModel packed = LanguageModel::load(folder / "m.gguf");
  LanguageModel floats = LanguageModel::load(folder / "m.gguf", {.dequantize = true});
  EXPECT_LT(packed.weight_bytes(), floats.weight_bytes() / 6);
  const std::vector<int> prompt = {1, 17, 5, 44, 23, 60, 9};
  const auto expected = floats.logits(prompt).to_vector<double>();
  const auto got = packed.logits(prompt).to_vector<double>();
  double largest = 0;
  for (const double x : expected)
    largest = std::max(largest, std::abs(x));
  for (std::size_t i = 0; i < expected.size(); ++i)
    ASSERT_NEAR(got[i], expected[i], 1e-4 * largest) << i;
  const GenerateOptions greedy = {.max_new = 16, .stop = std::vector<int>{}};
  EXPECT_EQ(packed.generate(prompt, greedy).tokens, floats.generate(prompt, greedy).tokens);
}

} // namespace
} // namespace egret::models
