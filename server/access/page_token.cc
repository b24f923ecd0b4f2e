// SPDX-License-Identifier: Apache-2.0
// A token is one number, encrypted with AES-256-GCM with the query as
// additional authenticated data, in base64 for URLs:
//
//   | nonce, 12 | number, 8 | tag, 16 |
#include "server/access/page_token.h"

#include <openssl/evp.h>
#include <openssl/rand.h>

#include <cstring>
#include <memory>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "dcp/base/check.h"
#include "proto/error_detail.h"

namespace dcp::server {
namespace {

constexpr size_t kNonceBytes = 12;
constexpr size_t kTagBytes = 16;
constexpr size_t kTokenBytes = kNonceBytes + sizeof(uint64_t) + kTagBytes;

using Context = std::unique_ptr<EVP_CIPHER_CTX, decltype(&EVP_CIPHER_CTX_free)>;

Context NewContext() {
  Context context(EVP_CIPHER_CTX_new(), &EVP_CIPHER_CTX_free);
  DCP_CHECK(context != nullptr, "out of memory");
  return context;
}

const uint8_t* Bytes(absl::string_view text) {
  return reinterpret_cast<const uint8_t*>(text.data());
}

}  // namespace

PageTokens::PageTokens() {
  DCP_CHECK(RAND_bytes(key_.data(), static_cast<int>(key_.size())) == 1,
            "OpenSSL did not provide random bytes");
}

std::string PageTokens::Make(absl::string_view query, uint64_t next) const {
  std::array<uint8_t, kTokenBytes> token;
  uint8_t* const number = token.data() + kNonceBytes;
  uint8_t* const tag = number + sizeof(next);
  std::array<uint8_t, sizeof(next)> plain;
  memcpy(plain.data(), &next, sizeof(next));
  const Context context = NewContext();
  int length = 0;
  DCP_CHECK(
      RAND_bytes(token.data(), kNonceBytes) == 1 &&
          EVP_EncryptInit_ex(context.get(), EVP_aes_256_gcm(), nullptr,
                             key_.data(), token.data()) == 1 &&
          EVP_EncryptUpdate(context.get(), nullptr, &length, Bytes(query),
                            static_cast<int>(query.size())) == 1 &&
          EVP_EncryptUpdate(context.get(), number, &length, plain.data(),
                            static_cast<int>(plain.size())) == 1 &&
          EVP_EncryptFinal_ex(context.get(), number + length, &length) == 1 &&
          EVP_CIPHER_CTX_ctrl(context.get(), EVP_CTRL_GCM_GET_TAG, kTagBytes,
                              tag) == 1,
      "OpenSSL failed to encrypt");
  return absl::WebSafeBase64Escape(absl::string_view(
      reinterpret_cast<const char*>(token.data()), token.size()));
}

absl::StatusOr<uint64_t> PageTokens::Read(absl::string_view query,
                                          absl::string_view token) const {
  const auto refuse = [] {
    return BlameField(
        absl::InvalidArgumentError(
            "page_token is from another query or from another run of the "
            "server: begin with the first page"),
        "page_token", ErrorReason::INVALID_PAGE_TOKEN);
  };
  std::string bytes;
  // Does not decode longer tokens.
  if (token.size() > 2 * kTokenBytes ||
      !absl::WebSafeBase64Unescape(token, &bytes) ||
      bytes.size() != kTokenBytes) {
    return refuse();
  }
  const uint8_t* const number = Bytes(bytes) + kNonceBytes;
  std::array<uint8_t, kTagBytes> tag;
  memcpy(tag.data(), number + sizeof(uint64_t), tag.size());
  std::array<uint8_t, sizeof(uint64_t)> plain;
  const Context context = NewContext();
  int length = 0;
  if (EVP_DecryptInit_ex(context.get(), EVP_aes_256_gcm(), nullptr, key_.data(),
                         Bytes(bytes)) != 1 ||
      EVP_DecryptUpdate(context.get(), nullptr, &length, Bytes(query),
                        static_cast<int>(query.size())) != 1 ||
      EVP_DecryptUpdate(context.get(), plain.data(), &length, number,
                        static_cast<int>(plain.size())) != 1 ||
      EVP_CIPHER_CTX_ctrl(context.get(), EVP_CTRL_GCM_SET_TAG, kTagBytes,
                          tag.data()) != 1 ||
      EVP_DecryptFinal_ex(context.get(), plain.data() + length, &length) != 1) {
    return refuse();
  }
  uint64_t next = 0;
  memcpy(&next, plain.data(), sizeof(next));
  return next;
}

}  // namespace dcp::server
