// PageTokens: the `next_page_token` of lists. A token is where the next page
// begins, encrypted and bound to its query, so that a client can neither read
// nor make one, nor use it for another query. It is good for as long as the
// object that made it: one run of the server. Any thread.
#ifndef SERVER_PAGE_TOKEN_H_
#define SERVER_PAGE_TOKEN_H_

#include <array>
#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace dcp::server {

class PageTokens {
 public:
  // With a key of its own.
  PageTokens();
  PageTokens(const PageTokens&) = delete;
  PageTokens& operator=(const PageTokens&) = delete;

  // `query` is all that the list depends on: method, client, filter.
  std::string Make(absl::string_view query, uint64_t next) const;

  // What Make was given. InvalidArgument (INVALID_PAGE_TOKEN) for a token that
  // is not of this query and this object.
  absl::StatusOr<uint64_t> Read(absl::string_view query,
                                absl::string_view token) const;

 private:
  std::array<uint8_t, 32> key_;
};

}  // namespace dcp::server

#endif  // SERVER_PAGE_TOKEN_H_
