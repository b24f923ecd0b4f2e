// SPDX-License-Identifier: Apache-2.0

#include "tests/dcp/io/object/store_contract.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <latch>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "dcp/base/bytes.h"
#include "dcp/base/limits.h"
#include "dcp/io/object/object_url.h"
#include "tests/testing/status_matchers.h"

namespace dcp {
namespace {

using dcp::testing::IsOkAndHolds;
using dcp::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr absl::StatusCode kAlreadyExists = absl::StatusCode::kAlreadyExists;
constexpr absl::StatusCode kFailedPrecondition =
    absl::StatusCode::kFailedPrecondition;
constexpr absl::StatusCode kNotFound = absl::StatusCode::kNotFound;

PutCondition IfAbsent() { return {PutCondition::Kind::kIfAbsent, ""}; }

PutCondition IfEtag(absl::string_view etag) {
  return {PutCondition::Kind::kIfEtag, std::string(etag)};
}

}  // namespace

std::string StoreContract::Key(absl::string_view name) const {
  return absl::StrCat(
      ::testing::UnitTest::GetInstance()->current_test_info()->name(), "/",
      name);
}

bool StoreContract::takes_parts_in_order() const {
  const std::string url = store_->url();
  return TakesPartsInOrder(absl::string_view(url).substr(0, url.find(':')));
}

void StoreContract::ExpectReplaces(const PutCondition& condition) {
  ASSERT_OK(Put(*store_, Key("unconditional"), "first"));
  const absl::StatusOr<std::string> etag =
      Put(*store_, Key("unconditional"), "second", condition);
  ASSERT_OK(etag);
  EXPECT_THAT(Get(*store_, Key("unconditional"), *etag, 0, 6),
              IsOkAndHolds("second"));
}

namespace {

// Small objects at `keys`, several at once.
void PutAll(ObjectStore& store, const std::vector<std::string>& keys) {
  std::latch left(static_cast<std::ptrdiff_t>(keys.size()));
  for (const std::string& key : keys) {
    store.Put(key, AsBytes("x"), {}, std::stop_token(),
              [&](const absl::StatusOr<std::string>& etag) {
                EXPECT_OK(etag);
                left.count_down();
              });
  }
  left.wait();
}

std::vector<std::string> ObjectKeys(const std::vector<ObjectInfo>& objects) {
  std::vector<std::string> keys;
  for (const ObjectInfo& info : objects) keys.push_back(info.key);
  return keys;
}

TEST_P(StoreContract, PutBytesComeBackInAnyRange) {
  const std::string text = PatternedText(300'000, 1);
  const absl::StatusOr<std::string> etag = Put(*store_, Key("a"), text);
  ASSERT_OK(etag);
  EXPECT_THAT(Get(*store_, Key("a"), *etag, 0, text.size()),
              IsOkAndHolds(text));
  EXPECT_THAT(Get(*store_, Key("a"), *etag, 0, 1),
              IsOkAndHolds(text.substr(0, 1)));
  EXPECT_THAT(Get(*store_, Key("a"), *etag, 299'999, 1),
              IsOkAndHolds(text.substr(299'999)));
  EXPECT_THAT(Get(*store_, Key("a"), *etag, 4097, 70'001),
              IsOkAndHolds(text.substr(4097, 70'001)));
}

TEST_P(StoreContract, HeadReturnsSizeEtagAndTime) {
  const absl::StatusOr<std::string> etag = Put(*store_, Key("a"), "12345");
  ASSERT_OK(etag);
  const absl::StatusOr<ObjectInfo> info = store_->Head(Key("a"));
  ASSERT_OK(info);
  EXPECT_EQ(info->key, Key("a"));
  EXPECT_EQ(info->size, 5);
  EXPECT_EQ(info->etag, *etag);
  EXPECT_GT(info->modified_ns, 0);
  const absl::StatusOr<ObjectPage> page = store_->List(Key("a"), true, "");
  ASSERT_OK(page);
  ASSERT_THAT(page->objects, SizeIs(1));
  EXPECT_EQ(page->objects[0].size, 5);
  EXPECT_EQ(page->objects[0].etag, *etag);
  EXPECT_EQ(page->objects[0].modified_ns, info->modified_ns);
}

TEST_P(StoreContract, AnEmptyObjectIsAnObject) {
  ASSERT_OK(Put(*store_, Key("empty"), ""));
  const absl::StatusOr<ObjectInfo> info = store_->Head(Key("empty"));
  ASSERT_OK(info);
  EXPECT_EQ(info->size, 0);
}

TEST_P(StoreContract, AnAbsentObjectIsNotFoundByName) {
  EXPECT_THAT(store_->Head(Key("absent")),
              StatusIs(kNotFound, HasSubstr(absl::StrCat(store_->url(), "/",
                                                         Key("absent")))));
  EXPECT_THAT(Get(*store_, Key("absent"), "\"0\"", 0, 1),
              StatusIs(kNotFound, HasSubstr(Key("absent"))));
}

TEST_P(StoreContract, AReaderNoticesAReplacedObject) {
  const absl::StatusOr<std::string> before = Put(*store_, Key("a"), "before");
  ASSERT_OK(before);
  const absl::StatusOr<std::string> after = Put(*store_, Key("a"), "after!");
  ASSERT_OK(after);
  EXPECT_NE(*before, *after);
  EXPECT_THAT(Get(*store_, Key("a"), *before, 0, 6),
              StatusIs(kFailedPrecondition, HasSubstr("replaced")));
  EXPECT_THAT(Get(*store_, Key("a"), *after, 0, 6), IsOkAndHolds("after!"));
}

// The size was known before, so the server contradicts itself: the bytes cannot
// be trusted.
TEST_P(StoreContract, AReadPastTheEndIsUnavailable) {
  const absl::StatusOr<std::string> etag = Put(*store_, Key("a"), "12345");
  ASSERT_OK(etag);
  EXPECT_THAT(Get(*store_, Key("a"), *etag, 3, 3),
              StatusIs(absl::StatusCode::kUnavailable));
  EXPECT_THAT(Get(*store_, Key("a"), *etag, 5, 1),
              StatusIs(absl::StatusCode::kUnavailable));
}

TEST_P(StoreContract, KeysMayHaveAnyCharacters) {
  const std::vector<std::string> names = {
      "a b",          "a%20b",     "a+b",   "a&b=c?d", "<a>",
      "\"a\"",        "a'b",       "a#b",   "ä€😀",     "a;b,c:d@",
      "__0_0.distcp", ".metadata", "~a$!*", "(a)[b]{}"};
  for (const std::string& name : names) {
    const absl::StatusOr<std::string> etag = Put(*store_, Key(name), name);
    ASSERT_OK(etag) << name;
    EXPECT_THAT(Get(*store_, Key(name), *etag, 0, name.size()),
                IsOkAndHolds(name));
  }
  std::vector<std::string> keys;
  for (const std::string& name : names) keys.push_back(Key(name));
  std::sort(keys.begin(), keys.end());
  absl::StatusOr<std::vector<ObjectInfo>> listed = ListAll(*store_, Key(""));
  ASSERT_OK(listed);
  EXPECT_EQ(ObjectKeys(*listed), keys);
  EXPECT_OK(store_->Remove(keys));
  EXPECT_THAT(ListAll(*store_, Key("")), IsOkAndHolds(IsEmpty()));
}

TEST_P(StoreContract, ListsFoldersOrAllBelow) {
  PutAll(*store_,
         {Key("x/b/2"), Key("x/a"), Key("x/b/1"), Key("x/c/d/1"), Key("xy")});
  const absl::StatusOr<ObjectPage> folded =
      store_->List(Key("x/"), /*by_folder=*/true, "");
  ASSERT_OK(folded);
  EXPECT_THAT(ObjectKeys(folded->objects), ElementsAre(Key("x/a")));
  EXPECT_THAT(folded->folders, ElementsAre(Key("x/b/"), Key("x/c/")));
  EXPECT_EQ(folded->next, "");
  const absl::StatusOr<ObjectPage> flat =
      store_->List(Key("x/"), /*by_folder=*/false, "");
  ASSERT_OK(flat);
  EXPECT_THAT(
      ObjectKeys(flat->objects),
      ElementsAre(Key("x/a"), Key("x/b/1"), Key("x/b/2"), Key("x/c/d/1")));
  EXPECT_THAT(flat->folders, IsEmpty());
  const absl::StatusOr<ObjectPage> none =
      store_->List(Key("z/"), /*by_folder=*/true, "");
  ASSERT_OK(none);
  EXPECT_THAT(none->objects, IsEmpty());
  EXPECT_THAT(none->folders, IsEmpty());
}

TEST_P(StoreContract, ListsInPagesAndRemovesAPageAtOnce) {
  std::vector<std::string> keys;
  for (int i = 0; i < 1003; ++i) {
    keys.push_back(Key(absl::StrFormat("%04d", i)));
  }
  PutAll(*store_, keys);
  const absl::StatusOr<ObjectPage> first = store_->List(Key(""), false, "");
  ASSERT_OK(first);
  EXPECT_EQ(first->next.empty(), first->objects.size() == keys.size());
  absl::StatusOr<std::vector<ObjectInfo>> listed = ListAll(*store_, Key(""));
  ASSERT_OK(listed);
  EXPECT_EQ(ObjectKeys(*listed), keys);
  EXPECT_OK(
      store_->Remove(absl::MakeConstSpan(keys).subspan(3, kMaxObjectsRemoved)));
  listed = ListAll(*store_, Key(""));
  ASSERT_OK(listed);
  EXPECT_THAT(ObjectKeys(*listed), ElementsAre(keys[0], keys[1], keys[2]));
}

TEST_P(StoreContract, RemovingAnAbsentObjectIsNotAnError) {
  ASSERT_OK(Put(*store_, Key("a"), "1"));
  ASSERT_OK(Put(*store_, Key("b"), "1"));
  EXPECT_OK(store_->Remove({}));
  EXPECT_OK(store_->Remove({Key("absent")}));
  EXPECT_OK(store_->Remove({Key("absent"), Key("a"), Key("b")}));
  EXPECT_THAT(store_->Head(Key("a")), StatusIs(kNotFound));
  EXPECT_THAT(store_->Head(Key("b")), StatusIs(kNotFound));
}

TEST_P(StoreContract, APutIfAbsentReplacesNothing) {
  if (!store_->has_conditions()) return ExpectReplaces(IfAbsent());
  const absl::StatusOr<std::string> etag =
      Put(*store_, Key("a"), "first", IfAbsent());
  ASSERT_OK(etag);
  EXPECT_THAT(Put(*store_, Key("a"), "second", IfAbsent()),
              StatusIs(kAlreadyExists, HasSubstr(Key("a"))));
  EXPECT_THAT(Get(*store_, Key("a"), *etag, 0, 5), IsOkAndHolds("first"));
  EXPECT_OK(store_->Remove({Key("a")}));
  EXPECT_OK(Put(*store_, Key("a"), "third", IfAbsent()));
}

TEST_P(StoreContract, APutIfEtagReplacesOnlyThatObject) {
  if (!store_->has_conditions()) return ExpectReplaces(IfEtag("another"));
  const absl::StatusOr<std::string> first = Put(*store_, Key("a"), "first");
  ASSERT_OK(first);
  const absl::StatusOr<std::string> second =
      Put(*store_, Key("a"), "second", IfEtag(*first));
  ASSERT_OK(second);
  EXPECT_THAT(Put(*store_, Key("a"), "third", IfEtag(*first)),
              StatusIs(kFailedPrecondition, HasSubstr("somebody else")));
  EXPECT_THAT(Get(*store_, Key("a"), *second, 0, 6), IsOkAndHolds("second"));
  EXPECT_THAT(Put(*store_, Key("absent"), "x", IfEtag(*first)),
              StatusIs(kFailedPrecondition, HasSubstr("somebody else")));
}

TEST_P(StoreContract, OneOfEightWritersIfAbsentWins) {
  constexpr size_t kWriters = 8;
  const size_t most_winners = store_->has_conditions() ? 1 : kWriters;
  for (int round = 0; round < 5; ++round) {
    const std::string key = Key(absl::StrCat(round));
    std::array<absl::StatusOr<std::string>, kWriters> etags;
    std::vector<std::thread> writers;
    for (size_t i = 0; i < kWriters; ++i) {
      writers.emplace_back([&, i] {
        etags[i] = Put(*store_, key, absl::StrCat("writer ", i), IfAbsent());
      });
    }
    for (std::thread& writer : writers) writer.join();
    size_t num_winners = 0;
    for (size_t i = 0; i < kWriters; ++i) {
      if (!etags[i].ok()) {
        EXPECT_THAT(etags[i], StatusIs(kAlreadyExists));
        continue;
      }
      ++num_winners;
      if (!store_->has_conditions()) continue;
      EXPECT_THAT(Get(*store_, key, *etags[i], 0, 8),
                  IsOkAndHolds(absl::StrCat("writer ", i)));
    }
    EXPECT_EQ(num_winners, most_winners);
  }
}

TEST_P(StoreContract, AnUploadAppearsWholeWhenItIsFinished) {
  const std::string key = Key("file");
  const std::string text = PatternedText(2 * kMinObjectPartBytes + 12'345, 2);
  const absl::StatusOr<std::string> upload = store_->Begin(key, "writer1");
  ASSERT_OK(upload);
  std::vector<ObjectPart> parts(3);
  // The order does not matter, and a part may be put twice.
  std::vector<uint32_t> order = {3, 1, 2, 1};
  if (takes_parts_in_order()) order = {1, 2, 3};
  for (const uint32_t number : order) {
    const size_t begin = (number - 1) * kMinObjectPartBytes;
    const std::string piece = text.substr(begin, kMinObjectPartBytes);
    const absl::StatusOr<ObjectPart> part =
        PutPart(*store_, key, *upload, number, piece);
    ASSERT_OK(part);
    EXPECT_EQ(part->number, number);
    EXPECT_EQ(part->size, piece.size());
    parts[number - 1] = *part;
  }
  EXPECT_THAT(store_->Head(key), StatusIs(kNotFound));
  const absl::StatusOr<std::vector<ObjectPart>> listed =
      store_->Parts(key, *upload);
  ASSERT_OK(listed);
  ASSERT_THAT(*listed, SizeIs(3));
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ((*listed)[i].number, parts[i].number);
    EXPECT_EQ((*listed)[i].size, parts[i].size);
    EXPECT_EQ((*listed)[i].etag, parts[i].etag);
  }
  ASSERT_OK(store_->Finish(key, *upload, parts, /*replaces=*/true));
  const absl::StatusOr<ObjectInfo> info = store_->Head(key);
  ASSERT_OK(info);
  EXPECT_EQ(info->size, text.size());
  EXPECT_EQ(info->label, store_->has_labels() ? "writer1" : "");
  const absl::StatusOr<std::string> back =
      Get(*store_, key, info->etag, 0, text.size());
  ASSERT_OK(back);
  EXPECT_TRUE(*back == text);
  const absl::StatusOr<UploadPage> left = store_->Uploads(Key(""), "");
  ASSERT_OK(left);
  EXPECT_THAT(left->uploads, IsEmpty());
}

TEST_P(StoreContract, AnUploadDoesNotReplaceAnotherWritersObject) {
  const std::string key = Key("file");
  const absl::StatusOr<std::string> upload = store_->Begin(key, "writer1");
  ASSERT_OK(upload);
  const absl::StatusOr<ObjectPart> part =
      PutPart(*store_, key, *upload, 1, "part");
  ASSERT_OK(part);
  ASSERT_OK(Put(*store_, key, "another"));
  const absl::Status finished =
      store_->Finish(key, *upload, {*part}, /*replaces=*/false);
  if (!store_->has_conditions()) {
    EXPECT_OK(finished);
    return;
  }
  EXPECT_THAT(finished, StatusIs(kAlreadyExists, HasSubstr(key)));
  const absl::StatusOr<ObjectInfo> info = store_->Head(key);
  ASSERT_OK(info);
  EXPECT_EQ(info->size, 7);
  EXPECT_OK(store_->Remove({key}));
  EXPECT_OK(store_->Finish(key, *upload, {*part}, /*replaces=*/false));
}

TEST_P(StoreContract, RefusesPartsOutOfOrder) {
  const std::string key = Key("file");
  const absl::StatusOr<std::string> upload = store_->Begin(key, "");
  ASSERT_OK(upload);
  const absl::StatusOr<ObjectPart> second =
      PutPart(*store_, key, *upload, 2, "part");
  if (takes_parts_in_order()) {
    EXPECT_THAT(second, StatusIs(kFailedPrecondition, HasSubstr("order")));
  } else {
    EXPECT_OK(second);
  }
  EXPECT_OK(store_->Abort(key, *upload));
}

TEST_P(StoreContract, AnAbortedUploadLeavesNothing) {
  const std::string key = Key("file");
  const absl::StatusOr<std::string> upload = store_->Begin(key, "");
  ASSERT_OK(upload);
  const absl::StatusOr<ObjectPart> part =
      PutPart(*store_, key, *upload, 1, "part");
  ASSERT_OK(part);
  EXPECT_OK(store_->Abort(key, *upload));
  EXPECT_OK(store_->Abort(key, *upload));
  EXPECT_THAT(store_->Finish(key, *upload, {*part}, /*replaces=*/true),
              StatusIs(kNotFound));
  EXPECT_THAT(PutPart(*store_, key, *upload, 1, "part"), StatusIs(kNotFound));
  EXPECT_THAT(store_->Parts(key, *upload), StatusIs(kNotFound));
  EXPECT_THAT(store_->Head(key), StatusIs(kNotFound));
}

TEST_P(StoreContract, ListsAbandonedUploads) {
  std::vector<std::string> ids;
  for (const char* const name : {"a/1", "a/2 &", "b"}) {
    const absl::StatusOr<std::string> id = store_->Begin(Key(name), "");
    ASSERT_OK(id);
    ids.push_back(*id);
  }
  const absl::StatusOr<UploadPage> page = store_->Uploads(Key("a/"), "");
  ASSERT_OK(page);
  const size_t num_listed = store_->lists_uploads() ? 2 : 0;
  ASSERT_THAT(page->uploads, SizeIs(num_listed));
  const int64_t now_ns = absl::GetCurrentTimeNanos();
  constexpr int64_t kDayNs = int64_t{86'400} * 1'000'000'000;
  for (size_t i = 0; i < num_listed; ++i) {
    EXPECT_EQ(page->uploads[i].key, Key(i == 0 ? "a/1" : "a/2 &"));
    EXPECT_EQ(page->uploads[i].id, ids[i]);
    EXPECT_GT(page->uploads[i].begun_ns, now_ns - kDayNs);
    EXPECT_LT(page->uploads[i].begun_ns, now_ns + kDayNs);
    EXPECT_OK(store_->Abort(page->uploads[i].key, page->uploads[i].id));
  }
  EXPECT_OK(store_->Abort(Key("b"), ids[2]));
}

TEST_P(StoreContract, ManyReadsAndWritesAtOnce) {
  constexpr size_t kObjects = 64;
  const std::string text = PatternedText(kObjects * 10'000, 3);
  std::vector<std::string> etags(kObjects);
  {
    std::latch left(kObjects);
    for (size_t i = 0; i < kObjects; ++i) {
      store_->Put(Key(absl::StrCat(i)),
                  AsBytes(text).subspan(i * 10'000, 10'000), {},
                  std::stop_token(), [&, i](absl::StatusOr<std::string> etag) {
                    EXPECT_OK(etag);
                    if (etag.ok()) etags[i] = *std::move(etag);
                    left.count_down();
                  });
    }
    left.wait();
  }
  std::vector<uint8_t> back(text.size());
  std::latch left(kObjects);
  for (size_t i = 0; i < kObjects; ++i) {
    store_->Get(Key(absl::StrCat(i)), etags[i], 0,
                MutableByteSpan(back).subspan(i * 10'000, 10'000),
                std::stop_token(), [&](const absl::Status& status) {
                  EXPECT_OK(status);
                  left.count_down();
                });
  }
  left.wait();
  EXPECT_TRUE(AsText(back) == text);
}

TEST_P(StoreContract, AStoppedCallIsCancelled) {
  const absl::StatusOr<std::string> etag = Put(*store_, Key("a"), "12345");
  ASSERT_OK(etag);
  std::stop_source stop;
  stop.request_stop();
  EXPECT_THAT(Get(*store_, Key("a"), *etag, 0, 5, stop.get_token()),
              StatusIs(absl::StatusCode::kCancelled));
  EXPECT_THAT(Get(*store_, Key("a"), *etag, 0, 5), IsOkAndHolds("12345"));
}

TEST_P(StoreContract, StoppingManyCallsEndsThemAll) {
  constexpr size_t kCalls = 32;
  const std::string text = PatternedText(1'000'000, 4);
  const absl::StatusOr<std::string> etag = Put(*store_, Key("a"), text);
  ASSERT_OK(etag);
  std::stop_source stop;
  std::vector<std::vector<uint8_t>> into(kCalls);
  std::vector<absl::Status> statuses(kCalls);
  std::latch left(kCalls);
  for (size_t i = 0; i < kCalls; ++i) {
    into[i].resize(text.size());
    store_->Get(Key("a"), *etag, 0, MutableByteSpan(into[i]), stop.get_token(),
                [&, i](absl::Status status) {
                  statuses[i] = std::move(status);
                  left.count_down();
                });
    if (i == kCalls / 2) stop.request_stop();
  }
  left.wait();
  for (size_t i = 0; i < kCalls; ++i) {
    if (statuses[i].ok()) {
      EXPECT_TRUE(AsText(into[i]) == text) << i;
    } else {
      EXPECT_THAT(statuses[i], StatusIs(absl::StatusCode::kCancelled));
    }
  }
  EXPECT_THAT(statuses[kCalls - 1], StatusIs(absl::StatusCode::kCancelled));
}

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(StoreContract);

}  // namespace
}  // namespace dcp
