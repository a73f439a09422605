// A thin layer over SQLite: handles that close themselves, statements with typed parameters, and
// errors as one exception that its callers turn into warnings.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>

struct sqlite3;
struct sqlite3_stmt;

namespace egret::compiler {

class SqliteError : public std::runtime_error {
public:
  SqliteError(int code, const std::string& message) : std::runtime_error(message), code_(code) {}
  int code() const noexcept { return code_; }
  bool damaged() const noexcept; ///< the file is no database, or its pages contradict each other
  bool full() const noexcept;    ///< nothing can be written, or no more
  bool busy() const noexcept;    ///< another process holds it for longer than was waited

private:
  int code_;
};

class Sqlite;

/// One prepared statement. Parameters count from 1, columns from 0.
class Statement {
public:
  Statement(Sqlite& database, std::string_view sql);
  Statement& bind(int parameter, std::int64_t value);
  Statement& bind(int parameter, double value);
  Statement& bind(int parameter, std::string_view value);
  bool step(); ///< whether there is a row
  void run();  ///< to the end, and ready for new parameters
  std::int64_t integer(int column) const;
  double real(int column) const;
  std::string text(int column) const;

private:
  Sqlite& database_;
  struct Finish {
    void operator()(sqlite3_stmt* statement) const noexcept;
  };
  std::unique_ptr<sqlite3_stmt, Finish> statement_;
};

/// One connection, for one thread at a time.
class Sqlite {
public:
  enum class Mode : std::uint8_t {
    ReadWrite,
    ReadOnly,
    Unchanging ///< read only, in a folder where no process can write
  };
  Sqlite(const std::filesystem::path& path, Mode mode, int busy_milliseconds);
  void run(const char* sql);
  sqlite3* handle() const noexcept { return handle_.get(); }
  [[noreturn]] void fail(int code) const;

private:
  struct Close {
    void operator()(sqlite3* handle) const noexcept;
  };
  std::unique_ptr<sqlite3, Close> handle_;
};

} // namespace egret::compiler
