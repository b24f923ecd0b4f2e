// SPDX-License-Identifier: Apache-2.0
// PageTokens: the `next_page_token` in answers that list something. A token
// holds the position where the next page begins, encrypted and bound to the
// query, so that a client can neither read nor forge one, nor use it for
// another query. It is valid while the object that made it lives: for one run
// of the server. Any thread.
#ifndef SERVER_ACCESS_PAGE_TOKEN_H_
#define SERVER_ACCESS_PAGE_TOKEN_H_

#include <array>
#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace dcp::server {

class PageTokens {
 public:
  // Generates a random key.
  PageTokens();
  PageTokens(const PageTokens&) = delete;
  PageTokens& operator=(const PageTokens&) = delete;

  // `query` is everything that the list depends on: method, client, filter.
  std::string Make(absl::string_view query, uint64_t next) const;

  // The `next` that was given to Make. InvalidArgument (INVALID_PAGE_TOKEN) if
  // the token was not made for this query by this object.
  absl::StatusOr<uint64_t> Read(absl::string_view query,
                                absl::string_view token) const;

 private:
  std::array<uint8_t, 32> key_;
};

}  // namespace dcp::server

#endif  // SERVER_ACCESS_PAGE_TOKEN_H_
