// What a model of very many tensors costs in bytes and reads. Seconds are printed, not asserted.
#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstring>

#include "ckpt/catalog.h"
#include "ckpt/file_names.h"
#include "ckpt/reader.h"
#include "ckpt/store.h"
#include "ckpt/tensor_file.h"
#include "tests/crash/memory_fs.h"
#include "tests/crash/one_file_fs.h"
#include "tests/crash/state_fixture.h"

namespace fourfold {
namespace {

constexpr std::int64_t kTensors = 100'000, kElements = 8;
constexpr std::int64_t kTensorBytes = kElements * 4;
/// A manifest has room for 500,000 tensors.
constexpr std::int64_t kManifestBytes = kMaxManifestBytes / 500'000;
/// Of a tensor file's header: its name stands there twice, with its region.
constexpr std::int64_t kHeaderBytes = 256;

class Stopwatch {
 public:
  explicit Stopwatch(std::string what) : what_(std::move(what)) {}
  ~Stopwatch() {
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start_;
    fmt::print("{}: {:.2f} s\n", what_, seconds.count());
  }

 private:
  std::string what_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

/// So many small tensors, whole, with data, and names as long as those of large models.
struct ManyState {
  ManyState() : data(static_cast<std::size_t>(kTensors * kElements)) {
    for (std::size_t i = 0; i < data.size(); ++i) data[i] = static_cast<float>(i);
    for (std::int64_t i = 0; i < kTensors; ++i) {
      StateTensor t;
      t.name = fmt::format("layers.{}.mlp.experts.{}.down.weight", i / 250, i % 250);
      t.kind = kKindMaster;
      t.cls = TensorClass::kExpert;
      t.shape = {kElements};
      t.region = Region::whole(t.shape);
      t.data = data.data() + i * kElements;
      tensors.push_back(std::move(t));
    }
  }

  std::vector<float> data;
  std::vector<StateTensor> tensors;
};

class ManyTensors : public testing::Test {
 protected:
  /// Writes them as a checkpoint, once, and keeps the bytes of its files.
  static void SetUpTestSuite() {
    MemoryFs fs;
    const ManyState state;
    const Stopwatch watch("save");
    const auto saved = CheckpointStore(fs, "d").save(*make_solo(), test_meta(1), state.tensors);
    ASSERT_TRUE(saved) << saved.error().what();
    const std::string folder = "d/step-00000001/";
    manifest_text_ = fs.content(folder + kManifestName);
    shard_ = fs.content(folder + dense_file_name(0));
  }
  static void TearDownTestSuite() { manifest_text_ = shard_ = ""; }

  static inline std::string manifest_text_, shard_;
  ManyState state_;
};

TEST_F(ManyTensors, AManifestHasALineForEach) {
  const auto bytes = static_cast<std::int64_t>(manifest_text_.size());
  EXPECT_LE(bytes, kManifestBytes * kTensors);
  const Stopwatch watch("a manifest read and written");
  const auto read = parse_manifest(manifest_text_);
  ASSERT_TRUE(read) << read.error().what();
  EXPECT_EQ(static_cast<std::int64_t>(read.value().tensors.size()), kTensors);
  EXPECT_EQ(read.value().tensors.back().key(), state_.tensors.back().key());
  EXPECT_EQ(manifest_text(read.value()), manifest_text_);
}

TEST_F(ManyTensors, OneIsReadWithoutTheOthers) {
  const auto manifest = parse_manifest(manifest_text_);
  ASSERT_TRUE(manifest);
  const auto header = static_cast<std::int64_t>(shard_.size()) - kTensors * kTensorBytes;
  EXPECT_LE(header, kHeaderBytes * kTensors);

  StateTensor one = state_.tensors[kTensors / 2];
  std::vector<float> loaded(kElements);
  one.data = loaded.data();
  const OneFileFs fs(shard_);
  {
    const Stopwatch watch("one tensor loaded");
    read_tensors(fs, "", manifest.value(), {&one, 1});
  }
  EXPECT_TRUE(one.loaded);
  EXPECT_EQ(std::memcmp(loaded.data(), state_.tensors[kTensors / 2].data, kTensorBytes), 0);
  EXPECT_EQ(fs.bytes_read(), header + kTensorBytes);
  EXPECT_LE(fs.reads(), 3) << "length, header, data";
}

TEST_F(ManyTensors, AllAreReadOnce) {
  const auto manifest = parse_manifest(manifest_text_);
  ASSERT_TRUE(manifest);
  std::vector<float> loaded(state_.data.size());
  for (StateTensor& t : state_.tensors) {
    t.data = loaded.data() + (static_cast<float*>(t.data) - state_.data.data());
  }
  const OneFileFs fs(shard_);
  {
    const Stopwatch watch("all tensors loaded");
    read_tensors(fs, "", manifest.value(), state_.tensors);
  }
  EXPECT_EQ(loaded, state_.data);
  EXPECT_EQ(fs.bytes_read(), static_cast<std::int64_t>(shard_.size()));
}

}  // namespace
}  // namespace fourfold
