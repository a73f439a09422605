// Heads of requests that clients, proxies and attackers send.
#include "egret/serve.h"

#include "support/http_client.h"
#include "support/language_models.h"
#include "support/small_tokenizer.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>

namespace egret::serve {
namespace {

using test::HttpClient;
using test::HttpResponse;

class Heads : public testing::Test {
protected:
  static void SetUpTestSuite() {
    const test::TempFolder folder;
    test::write_served_folder(folder.path());
    ServeOptions options;
    options.model_name = "small";
    server_ = new Server(models::LanguageModel::load(folder.path(), {.context = 32}),
                         Tokenizer::load(folder.path()), options);
  }
  static void TearDownTestSuite() { delete server_; }

  /// The answer to a text that is sent as it is.
  static HttpResponse answer(const std::string& text) {
    HttpClient client(server_->port());
    client.send(text);
    return client.response();
  }
  static int status(const std::string& text) { return answer(text).status; }

  static Server* server_;
};
Server* Heads::server_ = nullptr;

const std::string kJson = "Content-Type: application/json\r\n";

TEST_F(Heads, AWholeAddressIsATarget) {
  const std::string host = " HTTP/1.1\r\nHost: localhost\r\n\r\n";
  EXPECT_EQ(status("GET http://localhost/health" + host), 200);
  EXPECT_EQ(status("GET HTTP://127.0.0.1:80/v1/models?a=b" + host), 200);
  EXPECT_EQ(status("GET https://[::1]:443/v1/models/small" + host), 200);
  for (const char* target : {"http://localhost", "http://localhost?q", "http://localhost/v2"})
    EXPECT_EQ(status("GET " + (target + host)), 404) << target;
  // Its host counts, not that of the field.
  EXPECT_EQ(status("GET http://evil.example/health" + host), 421);
  EXPECT_EQ(status("GET http://localhost/health HTTP/1.1\r\nHost: evil.example\r\n\r\n"), 200);
  for (const char* target : {"http://", "http:///health", "http://me@localhost/health"})
    EXPECT_EQ(status("GET " + (target + host)), 400) << target;
}

TEST_F(Heads, OneFieldNamesTheHost) {
  const std::string get = "GET /health HTTP/1.1\r\n";
  const HttpResponse none = answer(get + "\r\n");
  EXPECT_EQ(none.status, 400);
  EXPECT_NE(none.body.find("no field 'Host'"), std::string::npos) << none.body;
  EXPECT_EQ(status(get + "Host: localhost\r\nHost: localhost\r\n\r\n"), 400);
  EXPECT_EQ(status(get + "Host: localhost\r\nhost: evil.example\r\n\r\n"), 400);
  for (const char* host : {"a b", "localhost/", "me@localhost", "localhost, localhost"})
    EXPECT_EQ(status(get + "Host: " + host + "\r\n\r\n"), 400) << host;
  EXPECT_EQ(status(get + "Host: localhost\r\n\r\n"), 200);
  EXPECT_EQ(status(get + "Host:\r\n\r\n"), 200);
  EXPECT_EQ(status("GET /health HTTP/1.0\r\n\r\n"), 200);
}

// Where the length of a body may be read in two ways, what follows might be a request of its own.
TEST_F(Heads, BodiesHaveOneLength) {
  const std::string hidden = "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n";
  for (const std::string fields :
       {"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n",
        "Content-Length: 5\r\nContent-Length: 6\r\n", "Content-Length: 5, 6\r\n",
        "Content-Length: +5\r\n", "Content-Length: -1\r\n", "Content-Length: 0x5\r\n",
        "Content-Length: 99999999999999999999\r\n", "Transfer-Encoding: identity\r\n",
        "Transfer-Encoding: xchunked\r\n", "Transfer-Encoding: gzip, chunked\r\n",
        "Transfer-Encoding: chunked, identity\r\n",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding : chunked\r\n"}) {
    HttpClient client(server_->port());
    client.send("POST /tokenize HTTP/1.1\r\nHost: localhost\r\n" + kJson + fields +
                "\r\n0\r\n\r\n" + hidden);
    EXPECT_EQ(client.response().status, 400) << fields;
    EXPECT_TRUE(client.ended()) << fields;
  }
  HttpClient old(server_->port());
  old.send("POST /tokenize HTTP/1.0\r\n" + kJson + "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n" +
           hidden);
  EXPECT_EQ(old.response().status, 400);
  EXPECT_TRUE(old.ended());
  const std::string body = "e\r\n{\"prompt\":\"a\"}\r\n0\r\n\r\n";
  EXPECT_EQ(status("POST /tokenize HTTP/1.1\r\nHost: localhost\r\n" + kJson +
                   "Transfer-Encoding: Chunked\r\n\r\n" + body),
            200);
}

TEST_F(Heads, RequestsThatComeTogetherAreAnsweredInOrder) {
  HttpClient client(server_->port());
  const std::string head = " HTTP/1.1\r\nHost: localhost\r\n";
  client.send("GET /health" + head + "\r\nPOST /tokenize" + head + kJson +
              "Content-Length: 14\r\n\r\n{\"prompt\":\"a\"}" + "GET /v2" + head +
              "\r\nGET /health" + head + "Connection: close\r\n\r\nGET /health" + head + "\r\n");
  EXPECT_EQ(client.response().body, R"({"status":"ok"})");
  EXPECT_NE(client.response().body.find("\"count\":1"), std::string::npos);
  EXPECT_EQ(client.response().status, 404);
  EXPECT_EQ(client.response().status, 200);
  EXPECT_TRUE(client.ended());
}

// The small vocabulary has letters and few signs: no text of JSON can be written with it.
TEST_F(Heads, AFormatThatTheVocabularyCannotWriteIsRefusedBeforehand) {
  const std::string body = R"({"messages":[{"role":"user","content":"a"}],)"
                           R"("response_format":{"type":"json_object"}})";
  const HttpResponse r = test::http(server_->port(), "POST", "/v1/chat/completions", body);
  EXPECT_EQ(r.status, 400);
  EXPECT_NE(r.body.find("begin with '{'"), std::string::npos) << r.body;
  EXPECT_NE(r.body.find("\"param\":\"response_format\""), std::string::npos) << r.body;
}

} // namespace
} // namespace egret::serve
