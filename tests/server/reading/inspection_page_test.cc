// SPDX-License-Identifier: Apache-2.0

#include "server/reading/inspection_page.h"

#include <atomic>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/error_detail.h"
#include "tests/testing/golden.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace dcp::server {
namespace {

namespace v1 = ::tessera::v1;

using ::dcp::testing::CopyGolden;
using ::dcp::testing::StatusIs;
using ::dcp::testing::TempDir;
using ::testing::HasSubstr;

constexpr uint64_t kFileBytes = 1234;

class InspectionPageTest : public ::testing::Test {
 protected:
  InspectionPageTest()
      : fs_(NewPosixFileSystem()),
        tasks_(
            std::make_shared<TaskQueue>(TaskQueue::Limits{.max_waiting = 10})) {
  }

  // Data that is dropped from now on is closed at once.
  ~InspectionPageTest() override { tasks_->Stop(); }

  std::shared_ptr<SharedCheckpoint> Open(const std::string& golden,
                                         const std::string& etag) {
    absl::StatusOr<std::unique_ptr<Checkpoint>> checkpoint =
        Checkpoint::Open(*fs_, CopyGolden(dir_, golden), OpenOptions());
    EXPECT_OK(checkpoint);
    EXPECT_OK((*checkpoint)->LocateAll());
    CheckpointState state{.etag = etag, .file_sizes = {}};
    state.file_sizes.resize((*checkpoint)->files().names().size(), kFileBytes);
    return SharedCheckpoint::Make(
        tasks_,
        std::make_unique<RootedFileSystem>(
            *fs_,
            Client("me", {{.path = dir_.path(), .real_path = dir_.path()}})),
        *std::move(checkpoint), std::move(state), OpenOptions(),
        std::make_shared<std::atomic<uint64_t>>(0));
  }

  absl::StatusOr<v1::InspectResponse> Page(const SharedCheckpoint& shared,
                                           const v1::InspectRequest& request) {
    absl::StatusOr<InspectionPage> page =
        ChoosePage(shared, request, tokens_, [] { return false; });
    if (!page.ok()) return page.status();
    v1::InspectResponse response;
    FillPage(shared, request, *page, tokens_, /*with_texts=*/true, response);
    return response;
  }

  const TempDir dir_;
  const std::unique_ptr<FileSystem> fs_;
  const std::shared_ptr<TaskQueue> tasks_;
  const PageTokens tokens_;
};

TEST_F(InspectionPageTest, StopsACancelledCall) {
  const auto shared = Open("torch-2.11/sharded", "a");
  EXPECT_THAT(
      ChoosePage(*shared, v1::InspectRequest(), tokens_, [] { return true; }),
      StatusIs(absl::StatusCode::kCancelled));
}

TEST_F(InspectionPageTest, PagesOfAnySizeListEverything) {
  const auto shared = Open("torch-2.11/sharded", "a");
  v1::InspectRequest request;
  request.set_chunks(true);
  ASSERT_OK_AND_ASSIGN(const v1::InspectResponse whole, Page(*shared, request));
  EXPECT_EQ(whole.next_page_token(), "");
  EXPECT_EQ(static_cast<size_t>(whole.tensors_size() + whole.objects_size()),
            shared->checkpoint().entries().size());
  EXPECT_EQ(whole.num_tensors(), static_cast<uint64_t>(whole.tensors_size()));
  EXPECT_EQ(whole.num_objects(), static_cast<uint64_t>(whole.objects_size()));
  EXPECT_GT(whole.files_size(), 0);
  EXPECT_EQ(whole.format(), v1::FORMAT_DCP);
  EXPECT_EQ(whole.etag(), "a");
  for (const int size : {1, 2, 7, 1000}) {
    v1::InspectResponse joined;
    request.set_page_size(size);
    request.clear_page_token();
    do {
      ASSERT_OK_AND_ASSIGN(v1::InspectResponse page, Page(*shared, request));
      EXPECT_LE(page.tensors_size() + page.objects_size(), size);
      EXPECT_EQ(page.num_bytes(), whole.num_bytes());
      EXPECT_EQ(page.num_tensors(), whole.num_tensors());
      EXPECT_EQ(page.files_size() > 0, request.page_token().empty());
      request.set_page_token(page.next_page_token());
      joined.mutable_tensors()->MergeFrom(page.tensors());
      joined.mutable_objects()->MergeFrom(page.objects());
    } while (!request.page_token().empty());
    ASSERT_EQ(joined.tensors_size(), whole.tensors_size());
    for (int i = 0; i < whole.tensors_size(); ++i) {
      EXPECT_EQ(joined.tensors(i).ShortDebugString(),
                whole.tensors(i).ShortDebugString());
    }
    ASSERT_EQ(joined.objects_size(), whole.objects_size());
  }
}

TEST_F(InspectionPageTest, FiltersByName) {
  const auto shared = Open("torch-2.11/archive.pt", "a");
  v1::InspectRequest request;
  const std::string name = shared->checkpoint().entries()[0].fqn;
  request.add_names(name);
  ASSERT_OK_AND_ASSIGN(const v1::InspectResponse page, Page(*shared, request));
  EXPECT_EQ(page.tensors_size() + page.objects_size(), 1);
  EXPECT_EQ(page.num_tensors() + page.num_objects(), 1u);
}

TEST_F(InspectionPageTest, RefusesTokensFromOtherQueries) {
  const auto shared = Open("torch-2.11/sharded", "a");
  const auto replaced = Open("torch-2.11/train", "b");
  v1::InspectRequest request;
  request.set_page_size(1);
  ASSERT_OK_AND_ASSIGN(const v1::InspectResponse page, Page(*shared, request));
  const std::string token = page.next_page_token();
  ASSERT_NE(token, "");
  request.set_page_token(token);
  EXPECT_OK(Page(*shared, request));
  EXPECT_THAT(
      Page(*replaced, request),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("page_token")));
  v1::InspectRequest other = request;
  other.set_chunks(true);
  EXPECT_FALSE(Page(*shared, other).ok());
  other = request;
  other.add_names("*");
  EXPECT_FALSE(Page(*shared, other).ok());
  for (const std::string& forged : {std::string("x"), "x" + token, token + "x",
                                    std::string("0123456789abcdef-1")}) {
    request.set_page_token(forged);
    const absl::Status status = Page(*shared, request).status();
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kInvalidArgument,
                                 HasSubstr("page_token")))
        << forged;
    EXPECT_EQ(ErrorReasonName(status), "INVALID_PAGE_TOKEN");
  }
}

TEST_F(InspectionPageTest, ChecksSizes) {
  const auto shared = Open("torch-2.11/sharded", "a");
  v1::InspectRequest request;
  for (const int size : {-1, 10'001}) {
    request.set_page_size(size);
    EXPECT_THAT(Page(*shared, request),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         HasSubstr("page_size is")));
  }
}

}  // namespace
}  // namespace dcp::server
