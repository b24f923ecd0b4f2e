// SPDX-License-Identifier: Apache-2.0
// S3FaultsTest: a real server behind a proxy that answers in the server's
// place.
#ifndef TESTS_DCP_IO_S3_S3_FAULTS_FIXTURE_H_
#define TESTS_DCP_IO_S3_S3_FAULTS_FIXTURE_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "dcp/io/object/object_store.h"
#include "dcp/io/s3/s3_settings.h"
#include "dcp/io/s3/s3_store.h"
#include "gtest/gtest.h"
#include "tests/dcp/io/object/store_contract.h"
#include "tests/testing/faulty_proxy.h"
#include "tests/testing/object_server.h"
#include "tests/testing/status_matchers.h"

namespace dcp::testing {

inline constexpr uint32_t kNumRetries = 3;

class S3FaultsTest : public ::testing::Test {
 protected:
  // Opens the bucket through a proxy; `faults` begin when it is open.
  void Open(FaultyProxy::Faults faults) {
    FaultyProxy::Faults later;
    later.stalls = faults.stalls;
    later.instead = [this, faults](const std::string& head) {
      return is_open_ && faults.instead ? faults.instead(head) : std::nullopt;
    };
    later.change = [this, faults](const std::string& head,
                                  const std::string& answer) {
      return is_open_ && faults.change ? faults.change(head, answer) : answer;
    };
    const absl::StatusOr<S3Settings> settings = Settings(std::move(later));
    ASSERT_OK(settings);
    absl::StatusOr<std::unique_ptr<ObjectStore>> store =
        OpenS3Store(ObjectServer::kBucket, *settings);
    ASSERT_OK(store);
    store_ = *std::move(store);
    is_open_ = true;
  }

  absl::StatusOr<S3Settings> Settings(FaultyProxy::Faults faults) {
    proxy_ = std::make_unique<FaultyProxy>(ObjectServer::Get().endpoint(),
                                           std::move(faults));
    absl::StatusOr<S3Settings> settings = ReadS3Settings();
    if (settings.ok()) {
      settings->endpoint = proxy_->endpoint();
      settings->num_retries = num_retries_;
      settings->give_up_s = give_up_s_;
      settings->first_wait_ms = 1;
      settings->longest_wait_s = 1;
    }
    return settings;
  }

  // Answers `answer` to the first `num` requests that have `what` in the first
  // line.
  void OpenWithAnswers(int num, std::string what, std::string answer) {
    Open({.instead =
              [this, num, what = std::move(what), answer = std::move(answer)](
                  const std::string& head) -> std::optional<std::string> {
            const std::string line = head.substr(0, head.find('\r'));
            if (!absl::StrContains(line, what) || ++num_faults_ > num) {
              return std::nullopt;
            }
            return answer;
          },
          .change = nullptr});
  }

  // Begins an upload at `key` with one part, ready to be finished.
  ObjectPart BeginWithPart(const std::string& key, std::string& upload) {
    const absl::StatusOr<std::string> id = store_->Begin(key, "");
    EXPECT_OK(id);
    upload = id.value_or("");
    const absl::StatusOr<ObjectPart> part =
        PutPart(*store_, key, upload, 1, "part");
    EXPECT_OK(part);
    return part.value_or(ObjectPart());
  }

  uint32_t num_retries_ = kNumRetries;
  uint32_t give_up_s_ = S3Settings().give_up_s;
  std::atomic<bool> is_open_ = false;
  std::atomic<int> num_faults_ = 0;
  std::unique_ptr<FaultyProxy> proxy_;
  std::unique_ptr<ObjectStore> store_;
};

}  // namespace dcp::testing

#endif  // TESTS_DCP_IO_S3_S3_FAULTS_FIXTURE_H_
