#include "ckpt/hf_convert.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>

#include "base/bfloat16.h"
#include "ckpt/commands.h"
#include "ckpt/hf_tensors.h"
#include "ckpt/tensor_reader.h"
#include "formats/file_io.h"
#include "formats/hf_weights.h"
#include "tests/unit/ckpt/model_state.h"

namespace fourfold {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

using Bytes = std::vector<std::byte>;

constexpr const char* kGpt2 = R"({"model_type": "gpt2", "vocab_size": 53, "n_positions": 7,
  "n_embd": 12, "n_layer": 2, "n_head": 3, "n_inner": 29})";
constexpr const char* kLlama = R"({"model_type": "llama", "vocab_size": 53, "hidden_size": 12,
  "max_position_embeddings": 7, "num_hidden_layers": 2, "num_attention_heads": 4,
  "num_key_value_heads": 2, "head_dim": 4, "intermediate_size": 29})";

/// Folders of one test, and what it does in them.
class HfConvertTest : public ::testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/fourfold-hf-XXXXXX";
    root_ = ::mkdtemp(name);
    std::filesystem::create_directories(in());
  }
  void TearDown() override { std::filesystem::remove_all(root_); }

  std::string in() const { return root_ + "/in"; }
  std::string run() const { return root_ + "/run"; }

  /// A model folder of random weights; returns them by the names of its files.
  std::map<std::string, Bytes> write_folder(const std::string& config, const std::string& dtype,
                                            const std::string& without_prefix = "",
                                            std::uint64_t shard = 1 << 30) {
    write_text_file(in() + "/config.json", config);
    const ModelSpec model = parse_hf_config(config, "config.json").value();
    const HfFamily family = hf_family_of(model).value();
    std::vector<SafetensorsEntry> entries;
    std::map<std::string, Bytes> data;
    for (const HfTensor& t : hf_tensors(model, family)) {
      std::string name = t.name;
      if (name.starts_with(without_prefix)) name = name.substr(without_prefix.size());
      const DType type = dtype == "F32" ? DType::kF32 : DType::kBF16;
      entries.push_back({.name = name, .dtype = dtype, .shape = t.shape});
      data[name] = model_bytes(t.name, t.shape, type, 5);
    }
    for (const SafetensorsEntry& extra : extra_) {
      entries.push_back(extra);
      data[extra.name] = model_bytes(extra.name, extra.shape, DType::kF32, 5);
    }
    write_hf_weights(in(), entries, shard, [&](std::size_t i) { return data[entries[i].name]; });
    return data;
  }

  std::string import_folder(const std::vector<std::string>& overrides = {}) {
    return import_hf(fs_, in(), run(), overrides);
  }
  std::string import_error(ErrorKind kind = ErrorKind::kData,
                           const std::vector<std::string>& overrides = {}) {
    try {
      import_folder(overrides);
      return "accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), kind) << error.what();
      EXPECT_FALSE(std::filesystem::exists(run() + "/checkpoints/step-00000000"));
      return error.what();
    }
  }

  Bytes stored(const std::string& key) {
    FoundCheckpoint found = find_checkpoint(fs_, run()).value();
    TensorReader reader(fs_, found.folder, found.manifest);
    Bytes data;
    if (const ManifestTensor* tensor = reader.find(key)) reader.read(*tensor, data);
    return data;
  }
  std::vector<float> master(const std::string& name) {
    const Bytes data = stored(name + "@master");
    std::vector<float> values(data.size() / sizeof(float));
    std::memcpy(values.data(), data.data(), data.size());
    return values;
  }
  static std::vector<float> floats(const Bytes& data) {
    std::vector<float> values(data.size() / sizeof(float));
    std::memcpy(values.data(), data.data(), data.size());
    return values;
  }

  /// Exports the run and compares with what was imported.
  void expect_exported(const std::map<std::string, Bytes>& wanted, const std::string& prefix,
                       const HfExportOptions& options) {
    const std::string out = root_ + "/out";
    std::filesystem::remove_all(out);
    export_hf(fs_, run(), out, options);
    const HfWeights weights = HfWeights::open(out).value();
    EXPECT_EQ(weights.names().size(), wanted.size());
    for (const auto& [name, data] : wanted) {
      const std::string saved = name.starts_with("lm_head") ? name : prefix + name;
      const SafetensorsEntry* entry = weights.find(saved);
      ASSERT_TRUE(entry) << saved;
      Bytes found(entry->bytes());
      weights.read(saved, found).value();
      EXPECT_TRUE(found == data) << saved;
    }
  }

  PosixFs fs_;
  std::string root_;
  std::vector<SafetensorsEntry> extra_;
};

TEST_F(HfConvertTest, Gpt2TensorsFindTheirPlaces) {
  const auto data = write_folder(kGpt2, "F32");
  EXPECT_THAT(import_folder(), AllOf(HasSubstr("imported gpt, "), HasSubstr("no tokenizer")));
  const auto fused = floats(data.at("transformer.h.1.attn.c_attn.weight"));
  const auto bias = floats(data.at("transformer.h.1.attn.c_attn.bias"));
  const char letters[] = {'q', 'k', 'v'};
  for (std::size_t part = 0; part < 3; ++part) {
    const std::string name = std::string("model.layers.1.self_attn.") + letters[part] + "_proj.";
    const auto weight = master(name + "weight");
    for (std::size_t o = 0; o < 12; ++o) {
      for (std::size_t i = 0; i < 12; ++i) {
        ASSERT_EQ(weight[o * 12 + i], fused[i * 36 + part * 12 + o]) << name;
      }
      ASSERT_EQ(master(name + "bias")[o], bias[part * 12 + o]);
    }
  }
  const auto up = master("model.layers.0.mlp.up_proj.weight");
  const auto fc = floats(data.at("transformer.h.0.mlp.c_fc.weight"));
  EXPECT_EQ(up[28 * 12 + 3], fc[3 * 29 + 28]) << "[29, 12] of [12, 29]";
  EXPECT_EQ(stored("model.embed_positions.weight@master"), data.at("transformer.wpe.weight"));
  EXPECT_EQ(stored("model.norm.bias@master"), data.at("transformer.ln_f.bias"));
}

TEST_F(HfConvertTest, LlamaTensorsKeepTheirNames) {
  const auto data = write_folder(kLlama, "F32");
  import_folder();
  for (const auto& [name, bytes] : data) EXPECT_TRUE(stored(name + "@master") == bytes) << name;
}

TEST_F(HfConvertTest, ImportedAndExportedIsTheSame) {
  for (const char* config : {kGpt2, kLlama}) {
    for (const std::uint64_t shard : {std::uint64_t{3000}, std::uint64_t{1} << 30}) {
      std::filesystem::remove_all(run());
      std::filesystem::remove_all(in());
      std::filesystem::create_directories(in());
      const auto data = write_folder(config, "F32", "", shard);
      import_folder();
      EXPECT_TRUE(checkpoint_verify(fs_, run()).value().ok());
      expect_exported(data, "", {.dtype = DType::kF32, .max_shard_bytes = shard});
    }
  }
}

TEST_F(HfConvertTest, Bf16IsExactBothWays) {
  const auto data = write_folder(kLlama, "BF16");
  import_folder();
  const auto head = master("lm_head.weight");
  std::uint16_t bits = 0;
  std::memcpy(&bits, data.at("lm_head.weight").data() + 2 * 7, sizeof(bits));
  EXPECT_EQ(head[7], bf16_to_float(bits));
  expect_exported(data, "", {.dtype = DType::kBF16});
}

TEST_F(HfConvertTest, HalfPrecisionIsRead) {
  write_folder(kLlama, "F16");
  import_folder();
  std::uint16_t bits = 0;
  const Bytes stored_bits = model_bytes("model.norm.weight", {12}, DType::kBF16, 5);
  std::memcpy(&bits, stored_bits.data() + 2 * 3, sizeof(bits));
  const int exponent = (bits >> 10) & 31;
  ASSERT_GT(exponent, 0);
  EXPECT_EQ(master("model.norm.weight")[3],
            std::ldexp(1.0f + static_cast<float>(bits & 1023) / 1024, exponent - 15));
}

TEST_F(HfConvertTest, PrefixesMasksAndTiedHeadsDoNotMatter) {
  extra_ = {{.name = "h.0.attn.bias", .dtype = "F32", .shape = {1, 1, 7, 7}},
            {.name = "h.1.attn.masked_bias", .dtype = "F32", .shape = {}},
            {.name = "lm_head.weight", .dtype = "F32", .shape = {53, 12}}};
  auto data = write_folder(kGpt2, "F32", "transformer.");
  import_folder();
  for (const auto& extra : extra_) data.erase(extra.name);
  expect_exported(data, "transformer.", {});
}

TEST_F(HfConvertTest, LlamasFrequenciesAreNotLearned) {
  extra_ = {{.name = "model.layers.0.self_attn.rotary_emb.inv_freq", .dtype = "F32", .shape = {2}}};
  auto data = write_folder(kLlama, "F32");
  import_folder();
  data.erase(extra_[0].name);
  expect_exported(data, "", {});
}

TEST_F(HfConvertTest, MomentsAreZero) {
  write_folder(kGpt2, "F32");
  import_folder();
  for (const char* kind : {"exp_avg", "exp_avg_sq"}) {
    EXPECT_EQ(stored(std::string("model.norm.weight@") + kind), Bytes(48)) << kind;
  }
  const CheckpointMeta meta = checkpoint_peek(fs_, run()).value();
  EXPECT_EQ(meta.step.value, 0);
  EXPECT_EQ(meta.scalars.at("updates"), "0");
}

TEST_F(HfConvertTest, TheRunFileIsARun) {
  write_folder(kLlama, "F32");
  import_folder({"train.steps=3", "model.seq_len=5", "train.precision=bf16"});
  const RunSpec run_spec = load_run(run() + "/config.toml").value();
  EXPECT_EQ(run_spec.dir, run());
  EXPECT_EQ(run_spec.train.steps, 3);
  EXPECT_EQ(run_spec.train.seq_len, 5);
  EXPECT_EQ(run_spec.model.kv_heads, 2);
  EXPECT_EQ(run_spec.model.head_dim, 4);
  EXPECT_EQ(checkpoint_peek(fs_, run()).value().config_toml, resolved_toml(run_spec));
  try {
    import_folder();
    ADD_FAILURE() << "imported over a run";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kUsage);
    EXPECT_THAT(error.what(), HasSubstr("is a run already"));
  }
}

TEST_F(HfConvertTest, RefusesWeightsThatAreNotOfTheConfig) {
  write_folder(kGpt2, "F32");
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string config = kGpt2;
    config.replace(config.find(from), from.size(), to);
    write_text_file(in() + "/config.json", config);
    return import_error();
  };
  EXPECT_THAT(with("53", "54"), HasSubstr("transformer.wte.weight is [53, 12], its config.json "
                                          "says [54, 12]"));
  EXPECT_THAT(with("\"n_layer\": 2", "\"n_layer\": 3"),
              HasSubstr("transformer.h.2.ln_1.weight is missing"));
  EXPECT_THAT(with("\"n_layer\": 2", "\"n_layer\": 1"),
              HasSubstr("transformer.h.1.attn.c_attn.bias has no place"));
  EXPECT_THAT(with("\"gpt2\"", "\"mistral\""), HasSubstr("is not built yet"));
  EXPECT_THAT(with("{", "{\"tie_word_embeddings\": false, "),
              HasSubstr("lm_head.weight is missing"));
  write_text_file(in() + "/config.json", kGpt2);
  EXPECT_THAT(import_error(ErrorKind::kData, {"model.layers=1"}), HasSubstr("has no place"));
  EXPECT_THAT(import_error(ErrorKind::kUsage, {"train.stesp=1"}), HasSubstr("unknown key"));
  EXPECT_EQ(import_folder().find("imported"), 0u);
}

TEST_F(HfConvertTest, RefusesTypesThatAreNotWeights) {
  write_folder(kLlama, "F32");
  std::filesystem::remove(in() + "/model.safetensors");
  std::vector<SafetensorsEntry> entries;
  const ModelSpec model = parse_hf_config(kLlama, "config.json").value();
  for (const HfTensor& t : hf_tensors(model, HfFamily::kLlama)) {
    entries.push_back({.name = t.name, .dtype = "I32", .shape = t.shape});
  }
  write_hf_weights(in(), entries, 1 << 30, [&](std::size_t i) {
    return model_bytes("", entries[i].shape, DType::kI32, 1);
  });
  EXPECT_THAT(import_error(), HasSubstr("model.embed_tokens.weight is of type I32"));
}

TEST_F(HfConvertTest, RefusesAFolderWithoutAModel) {
  EXPECT_THAT(import_error(), HasSubstr("config.json"));
  write_text_file(in() + "/config.json", kGpt2);
  EXPECT_THAT(import_error(), HasSubstr("has neither model.safetensors nor"));
}

TEST_F(HfConvertTest, AnExportAppearsWholeOrNotAtAll) {
  write_folder(kGpt2, "F32");
  import_folder();
  const std::string out = root_ + "/out";
  const auto error_of = [&](ErrorKind kind) -> std::string {
    try {
      export_hf(fs_, run(), out, {});
      return "";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), kind) << error.what();
      return error.what();
    }
  };
  std::filesystem::create_directories(out + "/something");
  EXPECT_THAT(error_of(ErrorKind::kUsage), HasSubstr("is there and not empty"));
  std::filesystem::remove_all(out + "/something");
  const std::string shard = run() + "/checkpoints/step-00000000/rank-00000.dense.safetensors";
  // A byte of the first master: noticed while the folder is written.
  std::fstream file(shard, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(0, std::ios::end);
  const auto size = static_cast<std::int64_t>(file.tellg());
  std::vector<char> bytes(static_cast<std::size_t>(size));
  file.seekg(0);
  file.read(bytes.data(), size);
  std::int64_t header = 0;
  std::memcpy(&header, bytes.data(), sizeof(header));
  const std::int64_t at = 8 + header + 5;
  const auto flip = [&] {
    bytes[static_cast<std::size_t>(at)] ^= 1;
    file.seekp(at);
    file.put(bytes[static_cast<std::size_t>(at)]);
    file.flush();
  };
  flip();
  EXPECT_THAT(error_of(ErrorKind::kData), HasSubstr("model.embed_tokens.weight@master"));
  EXPECT_TRUE(std::filesystem::is_empty(out));
  EXPECT_FALSE(std::filesystem::exists(out + ".tmp"));
  flip();
  EXPECT_EQ(error_of(ErrorKind::kData), "");
  EXPECT_TRUE(std::filesystem::exists(out + "/config.json"));
  EXPECT_TRUE(std::filesystem::exists(out + "/generation_config.json"));
}

}  // namespace
}  // namespace fourfold
