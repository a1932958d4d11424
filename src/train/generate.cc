#include <fmt/core.h>

#include <cstdio>
#include <cstring>

#include "ckpt/commands.h"
#include "ckpt/store.h"
#include "data/tokenizer.h"
#include "device/intra_op_threads.h"
#include "device/tensors.h"
#include "spec/run_config.h"
#include "train/commands.h"
#include "train/launch.h"
#include "train/rank_model.h"
#include "train/token_sampler.h"

namespace fourfold {
namespace {

/// The model of a checkpoint on one rank, in f32, for forward passes alone.
class Generator {
 public:
  Generator(const RunSpec& run, Communicator& world)
      : grid_(Grid(GridShape()), world),
        context_{grid_, DType::kF32, true, run.seed, false},
        model_(context_, run.model, {}),
        routers_(run.model) {}

  void load(Fs& fs, const std::string& path, Communicator& world) {
    const CheckpointPath found = find_checkpoints(fs, path).value();
    std::vector<StateTensor> state;
    for (Parameter* p : model_.parameters()) {
      StateTensor& t = state.emplace_back();
      t.name = p->spec.name;
      t.kind = kKindMaster;
      t.shape = p->spec.layout.shape;
      t.region = p->updated;
      t.data = p->master.mutable_data_ptr();
    }
    routers_.add_state(world.rank(), world.size(), state);
    CheckpointStore store(fs, found.dir);
    store.load(world, found.folder, state).value();
    for (const ParameterUnit& unit : model_.units()) unit.refresh_vectors();
  }

  /// Appends up to `count` tokens to `tokens`, calling `emit` with each; stops before the
  /// end-of-text token. Ids that the tokenizer does not have are never drawn.
  template <class Emit>
  void generate(std::vector<std::int64_t> tokens, int count, const SamplingOptions& options,
                const Tokenizer& tokenizer, Emit emit) {
    const auto known = static_cast<std::size_t>(tokenizer.vocab_size());
    const std::optional<std::int32_t> end = tokenizer.end_of_text();
    const std::int64_t longest = model_.spec().seq_len;
    std::vector<KvCache> caches = model_.make_caches(1, longest);
    std::size_t seen = 0;  // Tokens that are in the caches.
    for (int i = 0; i < count; ++i) {
      if (static_cast<std::int64_t>(tokens.size()) > longest) {
        // The context is full: go on with its newer half, read anew.
        tokens.erase(tokens.begin(), tokens.end() - longest / 2);
        for (KvCache& cache : caches) cache.length = 0;
        seen = 0;
      }
      const at::Tensor logits = model_.decode(batch_of(std::span(tokens).subspan(seen)), caches);
      seen = tokens.size();
      const std::int64_t token = sample_token({elements<float>(logits), known}, options, 0, i);
      if (end && token == *end) return;
      emit(token);
      tokens.push_back(token);
    }
  }

 private:
  MicroBatch batch_of(std::span<const std::int64_t> tokens) const {
    MicroBatch batch;
    batch.seq = static_cast<std::int64_t>(tokens.size());
    batch.tokens = empty_tensor({batch.seq}, DType::kI64);
    std::memcpy(batch.tokens.mutable_data_ptr(), tokens.data(), tokens.size_bytes());
    batch.samples = {0};
    batch.routing = routers_.reading();
    return batch;
  }

  ProcessGrid grid_;
  ParallelContext context_;
  Transformer model_;
  Routers routers_;
};

std::vector<std::int64_t> encode_prompt(const Tokenizer& tokenizer, const std::string& prompt) {
  const std::vector<std::int32_t> tokens = tokenizer.encode(prompt);
  std::vector<std::int64_t> wide(tokens.begin(), tokens.end());
  if (wide.empty()) {
    if (!tokenizer.end_of_text()) {
      throw Error(ErrorKind::kUsage, "an empty prompt, and the tokenizer has no end-of-text token",
                  "give some text with --prompt");
    }
    wide.push_back(*tokenizer.end_of_text());
  }
  return wide;
}

void check_tokenizer(const Tokenizer& tokenizer, const RunSpec& run) {
  if (tokenizer.vocab_size() <= run.model.vocab) return;
  throw Error(ErrorKind::kData,
              fmt::format("the tokenizer {} has {} tokens, the model {}", run.data.tokenizer,
                          tokenizer.vocab_size(), run.model.vocab),
              "use the tokenizer that the run was trained with");
}

}  // namespace

int generate_command(const GenerateOptions& options) {
  const std::string path = options.run_dir.empty() ? options.checkpoint : options.run_dir;
  PosixFs fs;
  const CheckpointMeta meta = checkpoint_peek(fs, path).value();
  const RunSpec run = parse_run(meta.config_toml, path + "'s configuration").value();
  // One rank writes; a launcher that started several gets one text.
  if (!find_launch(run.comm).speaks) return 0;
  if (run.data.tokenizer.empty()) {
    throw Error(ErrorKind::kUsage, "the run names no tokenizer",
                "set data.tokenizer in its run file and train on");
  }
  const Tokenizer tokenizer = Tokenizer::open(run.data.tokenizer).value();
  check_tokenizer(tokenizer, run);
  std::vector<std::int64_t> prompt = encode_prompt(tokenizer, options.prompt);
  if (static_cast<std::int64_t>(prompt.size()) > run.model.seq_len) {
    throw Error(ErrorKind::kUsage,
                fmt::format("the prompt has {} tokens, the model's context {}", prompt.size(),
                            run.model.seq_len),
                "shorten the prompt");
  }
  run_ranks(Launch{}, CommOptions{}, [&](Communicator& world) {
    Generator generator(run, world);
    generator.load(fs, path, world);
    std::fwrite(options.prompt.data(), 1, options.prompt.size(), stdout);
    const SamplingOptions sampling{options.temperature, options.top_k, options.top_p, options.seed};
    generator.generate(std::move(prompt), options.max_tokens, sampling, tokenizer,
                       [&](std::int64_t token) {
                         const std::string text = tokenizer.decode(std::span(&token, 1));
                         std::fwrite(text.data(), 1, text.size(), stdout);
                         std::fflush(stdout);
                       });
    std::fputs("\n", stdout);
  });
  return 0;
}

}  // namespace fourfold
