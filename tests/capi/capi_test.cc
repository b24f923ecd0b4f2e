// SPDX-License-Identifier: Apache-2.0
// The C interface, called as another language calls it.
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "capi/tessera.h"
#include "dcp/base/version.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/golden.h"
#include "tests/testing/temp_dir.h"

namespace {

using ::dcp::testing::CopyGolden;
using ::dcp::testing::GoldenCase;
using ::dcp::testing::ReadGoldenCase;
using ::dcp::testing::TempDir;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr int kCancelled = 1;
constexpr int kInvalidArgument = 3;
constexpr int kNotFound = 5;
constexpr int kAlreadyExists = 6;
constexpr int kFailedPrecondition = 9;
constexpr int kUnimplemented = 12;
constexpr int kDataLoss = 15;

// "<code> <message>"; empty for success. Frees the error.
std::string Told(tessera_error* error) {
  if (error == nullptr) return "";
  std::string told = absl::StrCat(tessera_error_code(error), " ",
                                  tessera_error_message(error));
  tessera_error_free(error);
  return told;
}

// The code; 0 for success. Frees the error.
int CodeOf(tessera_error* error) {
  if (error == nullptr) return 0;
  const int code = tessera_error_code(error);
  tessera_error_free(error);
  return code;
}

std::string Taken(tessera_bytes* bytes) {
  std::string text(reinterpret_cast<const char*>(tessera_bytes_data(bytes)),
                   tessera_bytes_size(bytes));
  tessera_bytes_free(bytes);
  return text;
}

TEST(Tessera, HasTheVersionOfTheLibrary) {
  EXPECT_STREQ(tessera_version(), dcp::kVersion);
}

TEST(Tessera, ComputesCrc32c) {
  // The CRC catalogue's check value.
  EXPECT_EQ(tessera_crc32c("123456789", 9), 0xe3069283);
  EXPECT_EQ(tessera_crc32c(nullptr, 0), 0);
}

TEST(Tessera, OpenErrorNamesThePath) {
  tessera_checkpoint* checkpoint = nullptr;
  tessera_error* error =
      tessera_checkpoint_open("/nothing/here", nullptr, &checkpoint);
  ASSERT_NE(error, nullptr);
  EXPECT_EQ(tessera_error_code(error), kNotFound);
  EXPECT_STREQ(tessera_error_path(error), "/nothing/here");
  EXPECT_STREQ(tessera_error_file(error), "");
  EXPECT_STREQ(tessera_error_tensor(error), "");
  EXPECT_STREQ(tessera_error_offset(error), "");
  EXPECT_EQ(checkpoint, nullptr);
  tessera_error_free(error);
}

// FSDP1's weights without shapes: the caller can show it.
TEST(Tessera, NamesTheLossesOfACheckpoint) {
  const TempDir temp;
  const std::string path = CopyGolden(temp, "dialects/fsdp1/dcp_local_ws2");
  tessera_checkpoint* checkpoint = nullptr;
  ASSERT_EQ(Told(tessera_checkpoint_open(path.c_str(), nullptr, &checkpoint)),
            "");
  tessera_bytes* described = nullptr;
  ASSERT_EQ(Told(tessera_checkpoint_describe(checkpoint, &described)), "");
  const std::string json(
      reinterpret_cast<const char*>(tessera_bytes_data(described)),
      tessera_bytes_size(described));
  EXPECT_THAT(json, HasSubstr("\"warnings\":[\"flat parameters of FSDP1"));
  tessera_bytes_free(described);
  tessera_checkpoint_free(checkpoint);
}

class OpenCheckpoint : public ::testing::Test {
 protected:
  void SetUp() override {
    path_ = CopyGolden(temp_, golden_.path);
    ASSERT_EQ(
        Told(tessera_checkpoint_open(path_.c_str(), nullptr, &checkpoint_)),
        "");
  }
  void TearDown() override { tessera_checkpoint_free(checkpoint_); }

  // Reads `sizes` elements at `offsets` in a tensor.
  tessera_error* Read(const std::string& name, const char* dtype,
                      std::vector<int64_t> offsets, std::vector<int64_t> sizes,
                      std::string& memory) {
    const tessera_region region = {name.c_str(),   dtype,        sizes.size(),
                                   offsets.data(), sizes.data(), memory.data(),
                                   memory.size()};
    return tessera_checkpoint_read(checkpoint_, &region, 1, 0, 1, nullptr);
  }

  const GoldenCase golden_ = ReadGoldenCase("torch-2.11/train");
  TempDir temp_;
  std::string path_;
  tessera_checkpoint* checkpoint_ = nullptr;
};

TEST_F(OpenCheckpoint, ReturnsEveryTensor) {
  ASSERT_FALSE(golden_.tensors.empty());
  for (const auto& [name, tensor] : golden_.tensors) {
    const std::vector<int64_t> sizes(tensor.shape.begin(), tensor.shape.end());
    std::string memory(tensor.bytes.size(), '?');
    EXPECT_EQ(Told(Read(name, tensor.dtype.c_str(),
                        std::vector<int64_t>(sizes.size(), 0), sizes, memory)),
              "");
    EXPECT_EQ(memory, tensor.bytes) << name;
  }
}

TEST_F(OpenCheckpoint, IsDescribedAsJson) {
  tessera_bytes* bytes = nullptr;
  ASSERT_EQ(Told(tessera_checkpoint_describe(checkpoint_, &bytes)), "");
  const std::string json = Taken(bytes);
  EXPECT_THAT(json, StartsWith(absl::StrCat("{\"path\":\"", path_, "\"")));
  EXPECT_THAT(json, HasSubstr("\"format\":\"dcp\",\"flattened\":true"));
  for (const auto& [name, tensor] : golden_.tensors) {
    EXPECT_THAT(json,
                HasSubstr(absl::StrCat("{\"name\":\"", name, "\",\"dtype\":\"",
                                       tensor.dtype, "\"")));
  }
  for (const auto& [name, value] : golden_.objects) {
    EXPECT_THAT(json, HasSubstr(absl::StrCat("{\"name\":\"", name, "\"")));
  }
}

TEST_F(OpenCheckpoint, ReturnsObjectsAsArchives) {
  ASSERT_FALSE(golden_.objects.empty());
  for (const auto& [name, value] : golden_.objects) {
    tessera_bytes* archive = nullptr;
    ASSERT_EQ(Told(tessera_checkpoint_object(checkpoint_, name.c_str(), nullptr,
                                             &archive)),
              "");
    const std::string bytes = Taken(archive);
    EXPECT_THAT(bytes, StartsWith("PK"));
    EXPECT_THAT(bytes, HasSubstr("archive/data.pkl"));
  }
  tessera_bytes* archive = nullptr;
  EXPECT_THAT(Told(tessera_checkpoint_object(
                  checkpoint_, golden_.tensors.begin()->first.c_str(), nullptr,
                  &archive)),
              HasSubstr("is not an object of"));
}

TEST_F(OpenCheckpoint, ReturnsItemsAsStored) {
  for (const auto& [name, value] : golden_.objects) {
    tessera_bytes* item = nullptr;
    ASSERT_EQ(Told(tessera_checkpoint_item(checkpoint_, name.c_str(), 0,
                                           nullptr, &item)),
              "");
    const std::string bytes = Taken(item);
    EXPECT_THAT(bytes, StartsWith("PK"));
    EXPECT_EQ(
        Told(tessera_object_check(
            reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size())),
        "");
  }
  std::vector<const char*> names;
  for (const auto& [name, tensor] : golden_.tensors) {
    names.push_back(name.c_str());
  }
  tessera_bytes* found = nullptr;
  ASSERT_EQ(Told(tessera_checkpoint_not_dense(checkpoint_, names.data(),
                                              names.size(), nullptr, &found)),
            "");
  EXPECT_EQ(Taken(found), "[]");
  EXPECT_THAT(Told(tessera_checkpoint_item(checkpoint_, names[0], 1000, nullptr,
                                           &found)),
              HasSubstr("none has the number 1000"));
  const char* const other = "nothing";
  EXPECT_EQ(CodeOf(tessera_checkpoint_not_dense(checkpoint_, &other, 1, nullptr,
                                                &found)),
            kNotFound);
}

TEST(Tessera, DetectsDamagedObjects) {
  const std::string text = "no archive";
  EXPECT_EQ(CodeOf(tessera_object_check(
                reinterpret_cast<const uint8_t*>(text.data()), text.size())),
            kDataLoss);
}

TEST(Tessera, ReportsServedPaths) {
  for (const char* path : {"run7/step-1", "/srv/run7", "s3://bucket/run7"}) {
    EXPECT_EQ(Told(tessera_check_served(path)), "") << path;
  }
  EXPECT_THAT(Told(tessera_check_served("memory://x")),
              HasSubstr("no store has the scheme memory"));
  // Tests run without plugins.
  EXPECT_EQ(CodeOf(tessera_check_served("gs://bucket/run7")), kUnimplemented);
}

TEST_F(OpenCheckpoint, RefusesMismatchedReads) {
  const auto& [name, tensor] = *golden_.tensors.begin();
  const std::vector<int64_t> sizes(tensor.shape.begin(), tensor.shape.end());
  const std::vector<int64_t> zeros(sizes.size(), 0);
  std::string memory(tensor.bytes.size(), '?');
  const auto told = [&](const char* dtype, const std::vector<int64_t>& offsets,
                        const std::vector<int64_t>& wanted) {
    return Told(Read(name, dtype, offsets, wanted, memory));
  };
  EXPECT_THAT(Told(Read("nothing", "float32", zeros, sizes, memory)),
              StartsWith("5 nothing: nothing is not a tensor of"));
  EXPECT_THAT(told("float31", zeros, sizes), HasSubstr("'float31' is not"));
  EXPECT_THAT(told("complex128", zeros, sizes), HasSubstr("does not take"));
  std::vector<int64_t> shifted = zeros;
  shifted[0] = 1;
  EXPECT_THAT(told("float32", shifted, sizes), HasSubstr("is not inside"));
  shifted[0] = -1;
  EXPECT_THAT(told("float32", shifted, sizes), HasSubstr("is not inside"));
  EXPECT_THAT(told("float32", {}, {}), HasSubstr("is not inside"));
  EXPECT_EQ(memory, std::string(memory.size(), '?'));
}

TEST_F(OpenCheckpoint, StopFromAnotherThreadEndsACall) {
  tessera_stop* stop = tessera_stop_new();
  std::thread([&] { tessera_stop_request(stop); }).join();
  tessera_checkpoint* second = nullptr;
  EXPECT_EQ(CodeOf(tessera_checkpoint_open(path_.c_str(), stop, &second)),
            kCancelled);
  tessera_stop_free(stop);
}

class Save : public ::testing::Test {
 protected:
  // Writes a row in the data file `name`, and returns the digests.
  std::string WriteRow(const std::string& name, const std::vector<float>& row) {
    tessera_file* file = nullptr;
    EXPECT_EQ(Told(tessera_file_new(path_.c_str(), &file)), "");
    const int64_t sizes[] = {1, static_cast<int64_t>(row.size())};
    tessera_range range;
    EXPECT_EQ(
        Told(tessera_file_add_tensor(file, "float32", 2, sizes, row.data(),
                                     nullptr, nullptr, &range)),
        "");
    EXPECT_EQ(range.offset, 0u);
    EXPECT_GT(range.length, 4 * row.size());
    tessera_bytes* digests = nullptr;
    EXPECT_EQ(Told(tessera_file_write(file, name.c_str(), nullptr, nullptr,
                                      &digests)),
              "");
    tessera_bytes* none = nullptr;
    EXPECT_EQ(
        CodeOf(tessera_file_write(file, name.c_str(), nullptr, nullptr, &none)),
        kFailedPrecondition);
    tessera_file_free(file);
    return Taken(digests);
  }

  std::string NameFor(tessera_save* save, int64_t rank) {
    tessera_bytes* name = nullptr;
    EXPECT_EQ(Told(tessera_save_file_name(save, rank, &name)), "");
    return Taken(name);
  }

  bool Has(const std::string& name) {
    return std::filesystem::exists(path_ + "/" + name);
  }

  TempDir temp_;
  const std::string path_ = temp_.Join("c");
};

TEST_F(Save, RemovesFilesWithoutACommit) {
  tessera_save* save = nullptr;
  ASSERT_EQ(Told(tessera_save_begin(path_.c_str(), 0, &save)), "");
  EXPECT_EQ(NameFor(save, 0), "__0_0.distcp");
  EXPECT_THAT(WriteRow("__0_0.distcp", {1, 2, 3}), HasSubstr("__0_0.distcp"));
  EXPECT_EQ(Told(tessera_save_adopt(save, "__1_7.distcp")), "");
  WriteRow("__1_7.distcp", {4, 5, 6});
  EXPECT_TRUE(Has("__1_7.distcp"));
  tessera_save_free(save);
  EXPECT_FALSE(Has("__0_0.distcp"));
  EXPECT_FALSE(Has("__1_7.distcp"));
}

TEST_F(Save, CommitMakesItVisible) {
  tessera_save* save = nullptr;
  ASSERT_EQ(Told(tessera_save_begin(path_.c_str(), 0, &save)), "");
  const std::string digests = WriteRow(NameFor(save, 0), {1, 2, 3});
  const uint8_t metadata[] = {'x'};  // the index is the caller's
  const char* const texts[] = {digests.c_str()};
  ASSERT_EQ(Told(tessera_save_commit(save, "id", metadata, 1, texts, 1)), "");
  tessera_save_free(save);
  EXPECT_TRUE(Has("__0_0.distcp"));
  EXPECT_TRUE(Has(".metadata"));
  EXPECT_TRUE(Has(".digests-id"));

  EXPECT_EQ(CodeOf(tessera_save_begin(path_.c_str(), 0, &save)),
            kAlreadyExists);
  ASSERT_EQ(Told(tessera_save_begin(path_.c_str(), 1, &save)), "");
  EXPECT_EQ(NameFor(save, 0), "__0_1.distcp");
  tessera_save* second = nullptr;
  EXPECT_EQ(CodeOf(tessera_save_begin(path_.c_str(), 1, &second)),
            kFailedPrecondition);
  tessera_save_free(save);
  EXPECT_TRUE(Has("__0_0.distcp"));
}

TEST_F(Save, RefusesBadFileNamesAndDigests) {
  tessera_save* save = nullptr;
  ASSERT_EQ(Told(tessera_save_begin(path_.c_str(), 0, &save)), "");
  EXPECT_THAT(Told(tessera_save_adopt(save, "../../etc/passwd")),
              HasSubstr("'../../etc/passwd' is not the name of a data file"));
  tessera_bytes* name = nullptr;
  EXPECT_EQ(CodeOf(tessera_save_file_name(save, -1, &name)), kInvalidArgument);
  const char* const texts[] = {"no digests"};
  EXPECT_NE(CodeOf(tessera_save_commit(save, "id", nullptr, 0, texts, 1)), 0);
  tessera_save_free(save);
  EXPECT_FALSE(Has(".metadata"));
}

TEST_F(Save, RefusesImpossibleTensors) {
  tessera_file* file = nullptr;
  ASSERT_EQ(Told(tessera_file_new(path_.c_str(), &file)), "");
  tessera_range range;
  const int64_t negative[] = {-1};
  const int64_t huge[] = {INT64_MAX / 2};
  const int64_t one[] = {1};
  const std::vector<int64_t> many(65, 1);
  const float value = 0;
  const auto add = [&](const char* dtype, size_t num_dims, const int64_t* sizes,
                       const void* data) {
    return Told(tessera_file_add_tensor(file, dtype, num_dims, sizes, data,
                                        nullptr, nullptr, &range));
  };
  EXPECT_THAT(add("float31", 1, one, &value), HasSubstr("'float31' is not"));
  EXPECT_THAT(add(nullptr, 1, one, &value), HasSubstr("'' is not the name"));
  EXPECT_THAT(add("float32", 1, negative, &value), HasSubstr("[-1]"));
  EXPECT_THAT(add("complex128", 1, huge, &value), HasSubstr("too large"));
  EXPECT_THAT(add("float32", 65, many.data(), &value), HasSubstr("at most 64"));
  EXPECT_THAT(add("float32", 1, one, nullptr), HasSubstr("has no memory"));
  tessera_file_free(file);
}

TEST_F(Save, WholeTensorsBecomeOneFile) {
  const std::string path = temp_.Join("model.safetensors");
  const std::vector<float> row = {1, 2, 3};
  const int64_t sizes[] = {1, 3};
  float* const data = const_cast<float*>(row.data());
  tessera_region tensor = {"w", "float32", 2, nullptr, sizes, data, 12};
  const tessera_pair pair = {"epoch", "7"};
  const char* format = nullptr;
  const auto write = [&](const std::string& to, size_t num_pairs,
                         int overwrite) {
    return Told(tessera_write_file(to.c_str(), format, &tensor, 1, &pair,
                                   num_pairs, overwrite, nullptr, nullptr));
  };
  ASSERT_EQ(write(path, 1, 0), "");
  EXPECT_THAT(write(path, 1, 0), StartsWith("6 "));
  EXPECT_EQ(write(path, 1, 1), "");
  EXPECT_EQ(write(temp_.Join("model.pt"), 0, 0), "");
  EXPECT_THAT(write(temp_.Join("model2.pt"), 1, 0),
              HasSubstr("only safetensors files have metadata"));
  EXPECT_THAT(write(temp_.Join("model"), 0, 0), HasSubstr("does not end in"));
  format = "dcp";
  EXPECT_THAT(write(temp_.Join("model"), 0, 0), HasSubstr("cannot be dcp"));
  format = "safetensors";
  EXPECT_EQ(write(temp_.Join("model.bin"), 1, 0), "");
  format = nullptr;
  tensor.num_bytes = 11;
  EXPECT_THAT(write(path, 1, 1), StartsWith("3 w: [1, 3] of float32"));

  tessera_checkpoint* checkpoint = nullptr;
  ASSERT_EQ(Told(tessera_checkpoint_open(path.c_str(), nullptr, &checkpoint)),
            "");
  tessera_bytes* json = nullptr;
  ASSERT_EQ(Told(tessera_checkpoint_describe(checkpoint, &json)), "");
  EXPECT_THAT(Taken(json), HasSubstr("\"epoch\":\"7\""));
  std::vector<float> found(3);
  const int64_t zeros[] = {0, 0};
  const tessera_region region = {"w",          "float32",       2, zeros, sizes,
                                 found.data(), found.size() * 4};
  EXPECT_EQ(
      Told(tessera_checkpoint_read(checkpoint, &region, 1, 0, 1, nullptr)), "");
  EXPECT_EQ(found, row);
  tessera_checkpoint_free(checkpoint);
}

int FailToFill(void*, uint64_t, uint8_t*, uint64_t) { return 1; }

TEST(Tessera, KeepsTheNewestSteps) {
  TempDir temp;
  const std::string run = temp.Join("run");
  tessera_bytes* told = nullptr;
  ASSERT_EQ(Told(tessera_newest_step(run.c_str(), &told)), "");
  EXPECT_EQ(Taken(told), "{\"step\":null,\"skipped\":[]}");
  const GoldenCase golden = ReadGoldenCase("torch-2.11/train");
  for (const char* step : {"step-2", "step-4", "step-6"}) {
    std::filesystem::create_directories(run);
    std::filesystem::rename(CopyGolden(temp, golden.path), run + "/" + step);
  }
  std::filesystem::create_directories(run + "/step-8");
  ASSERT_EQ(Told(tessera_newest_step(run.c_str(), &told)), "");
  const std::string newest = Taken(told);
  EXPECT_THAT(newest, StartsWith("{\"step\":6,\"skipped\":[\"skipped "));
  EXPECT_THAT(newest, HasSubstr("step-8: it has no .metadata"));
  ASSERT_EQ(Told(tessera_remove_old_steps(run.c_str(), 6, 1, 4, &told)), "");
  EXPECT_THAT(Taken(told), HasSubstr("step-2"));
  EXPECT_FALSE(std::filesystem::exists(run + "/step-2"));
  EXPECT_TRUE(std::filesystem::exists(run + "/step-4"));
}

TEST_F(Save, ObjectMayComeFromAFunction) {
  tessera_file* file = nullptr;
  ASSERT_EQ(Told(tessera_file_new(path_.c_str(), &file)), "");
  tessera_range range;
  EXPECT_THAT(
      Told(tessera_file_add_object(file, 3, nullptr, nullptr, nullptr, &range)),
      HasSubstr("has no memory"));
  const tessera_fill fill = [](void*, uint64_t offset, uint8_t* dst,
                               uint64_t size) {
    for (uint64_t i = 0; i < size; ++i) {
      dst[i] = static_cast<uint8_t>("xyz"[offset + i]);
    }
    return 0;
  };
  ASSERT_EQ(
      Told(tessera_file_add_object(file, 3, nullptr, fill, nullptr, &range)),
      "");
  EXPECT_EQ(range.length, 3u);
  tessera_save* save = nullptr;
  ASSERT_EQ(Told(tessera_save_begin(path_.c_str(), 0, &save)), "");
  tessera_bytes* digests = nullptr;
  ASSERT_EQ(Told(tessera_file_write(file, "__0_0.distcp", nullptr, nullptr,
                                    &digests)),
            "");
  tessera_bytes_free(digests);
  tessera_file_free(file);
  std::ifstream written(path_ + "/__0_0.distcp");
  std::string content;
  written >> content;
  EXPECT_EQ(content, "xyz");
  tessera_save_free(save);
}

TEST_F(Save, FailedSourceFailsTheFile) {
  tessera_save* save = nullptr;
  ASSERT_EQ(Told(tessera_save_begin(path_.c_str(), 0, &save)), "");
  const std::string name = NameFor(save, 0);
  tessera_file* file = nullptr;
  ASSERT_EQ(Told(tessera_file_new(path_.c_str(), &file)), "");
  const int64_t sizes[] = {8};
  tessera_range range;
  ASSERT_EQ(Told(tessera_file_add_tensor(file, "int64", 1, sizes, nullptr,
                                         FailToFill, nullptr, &range)),
            "");
  tessera_bytes* digests = nullptr;
  EXPECT_THAT(
      Told(tessera_file_write(file, name.c_str(), nullptr, nullptr, &digests)),
      HasSubstr("the tensor's source failed"));
  tessera_file_free(file);
  tessera_save_free(save);
  EXPECT_FALSE(Has(name));
}

}  // namespace
