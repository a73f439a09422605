#include "egraph_command.h"

#include <CLI/CLI.hpp>

int main(int argc, char** argv) {
  CLI::App app("egret: a deep-learning framework whose compiler searches", "egret");
  app.require_subcommand(1);
  add_egraph_command(app);
  CLI11_PARSE(app, argc, argv);
  return 0;
}
