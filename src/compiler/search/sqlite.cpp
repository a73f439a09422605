#include "compiler/search/sqlite.h"

#include <fmt/format.h>
#include <sqlite3.h>

#include <filesystem>
#include <system_error>

namespace egret::compiler {

bool SqliteError::damaged() const noexcept {
  const int kind = code_ & 0xff;
  return kind == SQLITE_CORRUPT || kind == SQLITE_NOTADB || kind == SQLITE_SCHEMA ||
         kind == SQLITE_FORMAT || kind == SQLITE_MISMATCH || kind == SQLITE_ERROR;
}

bool SqliteError::full() const noexcept {
  const int kind = code_ & 0xff;
  return kind == SQLITE_FULL || kind == SQLITE_READONLY || kind == SQLITE_IOERR ||
         kind == SQLITE_CANTOPEN;
}

bool SqliteError::busy() const noexcept {
  const int kind = code_ & 0xff;
  return kind == SQLITE_BUSY || kind == SQLITE_LOCKED;
}

void Sqlite::Close::operator()(sqlite3* handle) const noexcept {
  sqlite3_close_v2(handle);
}

void Statement::Finish::operator()(sqlite3_stmt* statement) const noexcept {
  sqlite3_finalize(statement);
}

namespace {

std::string uri_of(const std::filesystem::path& path, Sqlite::Mode mode) {
  std::string uri = "file:";
  for (const char c : path.string()) {
    if (c == '%' || c == '?' || c == '#')
      uri += fmt::format("%{:02x}", static_cast<unsigned char>(c));
    else
      uri += c;
  }
  return uri + (mode == Sqlite::Mode::Unchanging ? "?immutable=1" : "");
}

} // namespace

Sqlite::Sqlite(const std::filesystem::path& path, Mode mode, int busy_milliseconds) {
  // SQLite would wait for whoever writes to a pipe.
  std::error_code unknown;
  if (const auto status = std::filesystem::status(path, unknown);
      std::filesystem::exists(status) && !std::filesystem::is_regular_file(status))
    throw SqliteError(SQLITE_CANTOPEN, "it is not a regular file");
  sqlite3* handle = nullptr;
  const int flags = mode == Mode::ReadWrite ? SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE
                                            : SQLITE_OPEN_READONLY | SQLITE_OPEN_URI;
  const std::string name = mode == Mode::ReadWrite ? path.string() : uri_of(path, mode);
  const int code = sqlite3_open_v2(name.c_str(), &handle, flags | SQLITE_OPEN_NOMUTEX, nullptr);
  handle_.reset(handle);
  if (code != SQLITE_OK)
    fail(code);
  sqlite3_extended_result_codes(handle, 1);
  sqlite3_busy_timeout(handle, busy_milliseconds);
}

void Sqlite::fail(int code) const {
  throw SqliteError(code, handle_ ? sqlite3_errmsg(handle_.get()) : sqlite3_errstr(code));
}

void Sqlite::run(const char* sql) {
  if (const int code = sqlite3_exec(handle_.get(), sql, nullptr, nullptr, nullptr);
      code != SQLITE_OK)
    fail(code);
}

Statement::Statement(Sqlite& database, std::string_view sql) : database_(database) {
  sqlite3_stmt* statement = nullptr;
  const int code = sqlite3_prepare_v2(database.handle(), sql.data(), static_cast<int>(sql.size()),
                                      &statement, nullptr);
  statement_.reset(statement);
  if (code != SQLITE_OK)
    database.fail(code);
}

Statement& Statement::bind(int parameter, std::int64_t value) {
  if (const int code = sqlite3_bind_int64(statement_.get(), parameter, value); code != SQLITE_OK)
    database_.fail(code);
  return *this;
}

Statement& Statement::bind(int parameter, double value) {
  if (const int code = sqlite3_bind_double(statement_.get(), parameter, value); code != SQLITE_OK)
    database_.fail(code);
  return *this;
}

Statement& Statement::bind(int parameter, std::string_view value) {
  const int code = sqlite3_bind_text(statement_.get(), parameter, value.data(),
                                     static_cast<int>(value.size()), SQLITE_TRANSIENT);
  if (code != SQLITE_OK)
    database_.fail(code);
  return *this;
}

bool Statement::step() {
  const int code = sqlite3_step(statement_.get());
  if (code != SQLITE_ROW && code != SQLITE_DONE)
    database_.fail(code);
  return code == SQLITE_ROW;
}

void Statement::run() {
  while (step()) {
  }
  sqlite3_reset(statement_.get());
}

std::int64_t Statement::integer(int column) const {
  return sqlite3_column_int64(statement_.get(), column);
}
double Statement::real(int column) const {
  return sqlite3_column_double(statement_.get(), column);
}
std::string Statement::text(int column) const {
  const auto* text = reinterpret_cast<const char*>(sqlite3_column_text(statement_.get(), column));
  return text ? std::string(
                    text, static_cast<std::size_t>(sqlite3_column_bytes(statement_.get(), column)))
              : std::string();
}

} // namespace egret::compiler
