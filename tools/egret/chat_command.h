// egret chat.
#pragma once

namespace CLI {
class App;
}

namespace egret::tool {

void add_chat_command(CLI::App& app);

} // namespace egret::tool
