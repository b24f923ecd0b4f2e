// SPDX-License-Identifier: Apache-2.0

#include "server/memory/parsed_size.h"

#include <random>
#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tessera/v1/checkpoint_service.pb.h"
#include "tessera/v1/job_service.pb.h"

namespace dcp::server {
namespace {

namespace v1 = tessera::v1;

// The bytes that the message takes in addition to the object, without those
// that malloc adds.
template <typename Message>
uint64_t MeasuredBytes(const std::string& wire) {
  Message message;
  EXPECT_TRUE(message.ParseFromString(wire));
  return message.SpaceUsedLong() - sizeof(Message);
}

template <typename Message>
void ExpectBound(const std::string& wire, uint64_t most_times) {
  const uint64_t bound = ParsedSize(*Message::descriptor(), wire);
  const uint64_t size = MeasuredBytes<Message>(wire);
  EXPECT_GE(bound, size);
  EXPECT_LE(bound, most_times * (size + 100));
}

std::string Repeat(const std::string& text, int times) {
  std::string all;
  for (int i = 0; i < times; ++i) all += text;
  return all;
}

TEST(ParsedSize, BoundsManyEmptyMessages) {
  const std::string empty("\x2a\x00", 2);
  ExpectBound<v1::ConvertRequest>(Repeat(empty, 100'000), 3);
  const std::string meshes("\x7a\x00", 2);
  ExpectBound<v1::ConvertRequest>(Repeat(meshes, 100'000), 3);
}

TEST(ParsedSize, BoundsStringsMapsAndNestedMessages) {
  v1::ConvertRequest request;
  request.mutable_source()->set_path(std::string(3000, 'p'));
  for (int i = 0; i < 1000; ++i) {
    (*request.mutable_metadata())[absl::StrCat("key", i)] = "value";
    request.add_placements()->set_glob(absl::StrCat("name.", i));
    request.mutable_mesh()->add_axes()->set_name("x");
  }
  ExpectBound<v1::ConvertRequest>(request.SerializeAsString(), 4);
}

TEST(ParsedSize, BoundsUnknownFields) {
  // Fields 1000: a number, and a string.
  const std::string number("\xc0\x3e\x01", 3);
  const std::string text("\xc2\x3e\x01x", 4);
  ExpectBound<v1::InspectRequest>(Repeat(number, 10'000), 5);
  ExpectBound<v1::InspectRequest>(Repeat(text, 10'000), 5);
}

TEST(ParsedSize, StopsAtTheMaximum) {
  const std::string empty("\x2a\x00", 2);
  const std::string wire = Repeat(empty, 100'000);
  const auto& type = *v1::ConvertRequest::descriptor();
  const uint64_t all = ParsedSize(type, wire);
  EXPECT_EQ(ParsedSize(type, wire, all), all);
  const uint64_t some = ParsedSize(type, wire, all / 10);
  EXPECT_GT(some, all / 10);
  EXPECT_LT(some, all / 9);
}

TEST(ParsedSize, AcceptsAnyBytes) {
  std::mt19937 random(1);
  for (int i = 0; i < 20'000; ++i) {
    std::string wire(random() % 60, '\0');
    for (char& c : wire)
      c = static_cast<char>(random() % 4 == 0 ? random() : 10 + random() % 40);
    const uint64_t bound = ParsedSize(*v1::ConvertRequest::descriptor(), wire);
    v1::ConvertRequest request;
    if (request.ParseFromString(wire)) {
      EXPECT_GE(bound, request.SpaceUsedLong() - sizeof(request));
    }
  }
}

}  // namespace
}  // namespace dcp::server
