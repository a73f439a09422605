// The tokenizer that a GGUF file carries.
#pragma once

#include "egret/gguf.h"
#include "egret/tokenizer.h"

#include <string>

namespace egret::models {

/// Of the keys tokenizer.ggml.* and tokenizer.chat_template of a file's metadata: byte-level BPE
/// ("gpt2") and BPE with byte fallback whose merges follow from scores ("llama"). Ids and texts are
/// those of the tokenizer.json that the file was made from. `name` starts messages. Error(File) for
/// keys that are missing, of another type or contradict each other; Error(Unsupported) for another
/// kind of model (naming those known) and for a `tokenizer.ggml.pre` that egret does not know.
Tokenizer gguf_tokenizer(const io::GgufMetadata& metadata, const std::string& name = "GGUF");

} // namespace egret::models
