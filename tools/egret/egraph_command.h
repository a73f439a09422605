// egret egraph ...: runs rule programs in egglog's language.
#pragma once

namespace CLI {
class App;
}

/// Adds the subcommand `egraph` to the application. It runs when the command line is parsed.
void add_egraph_command(CLI::App& app);
