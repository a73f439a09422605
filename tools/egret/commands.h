// The subcommands. Each adds itself to the application and runs when the command line is parsed;
// errors are thrown.
#pragma once

namespace CLI {
class App;
}

namespace egret::tool {

void add_train_command(CLI::App& app); ///< train addition, digits, text
void add_ask_command(CLI::App& app);
void add_generate_command(CLI::App& app);
void add_embed_command(CLI::App& app);
void add_serve_command(CLI::App& app);
void add_quantize_command(CLI::App& app);
void add_dequantize_command(CLI::App& app);
void add_transcribe_command(CLI::App& app);
void add_classify_command(CLI::App& app);
void add_merge_command(CLI::App& app);
void add_finetune_command(CLI::App& app);
void add_eval_command(CLI::App& app); ///< eval ppl
void add_run_command(CLI::App& app);
void add_compile_command(CLI::App& app);
void add_view_command(CLI::App& app);
void add_profile_command(CLI::App& app);
void add_bisect_command(CLI::App& app);
void add_diff_command(CLI::App& app);
void add_bench_command(CLI::App& app);
void add_cache_command(CLI::App& app);
void add_info_command(CLI::App& app);
void add_tokenize_command(CLI::App& app);
void add_worker_command(CLI::App& app); ///< hidden

} // namespace egret::tool
