#pragma once

#include <algorithm>
#include <array>
#include <concepts>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "spec/config_key.h"

/// A field of RunSpec as a function to it, const or not: FF_FIELD(train.steps).
#define FF_FIELD(member) [](auto& run) -> auto& { return run.member; }

namespace fourfold {

/// Names of an enum's values as the run file spells them, in the order of the enum.
template <class E>
struct EnumNames;
template <>
struct EnumNames<Precision> {
  static std::vector<std::string> get() { return {"fp32", "bf16", "fp32x3"}; }
};
template <>
struct EnumNames<WireType> {
  static std::vector<std::string> get() { return {"fp32", "bf16"}; }
};
template <>
struct EnumNames<Recompute> {
  static std::vector<std::string> get() { return {"none", "attention", "mlp", "full", "budget"}; }
};
template <>
struct EnumNames<ScheduleKind> {
  static std::vector<std::string> get() {
    return {"constant", "linear", "cosine", "wsd", "inverse_sqrt"};
  }
};
template <>
struct EnumNames<NonFinite> {
  static std::vector<std::string> get() { return {"stop", "skip"}; }
};
template <>
struct EnumNames<Norm> {
  static std::vector<std::string> get() { return {"layernorm", "rmsnorm"}; }
};
template <>
struct EnumNames<Activation> {
  static std::vector<std::string> get() { return {"gelu", "swiglu"}; }
};
template <>
struct EnumNames<Position> {
  static std::vector<std::string> get() { return {"learned", "rotary"}; }
};
template <>
struct EnumNames<QkNorm> {
  static std::vector<std::string> get() { return {"none", "head", "whole"}; }
};
template <>
struct EnumNames<RouterScore> {
  static std::vector<std::string> get() { return {"softmax", "sigmoid"}; }
};
template <>
struct EnumNames<Balance> {
  static std::vector<std::string> get() { return {"none", "aux_loss", "loss_free", "forced"}; }
};
template <>
struct EnumNames<BalanceScope> {
  static std::vector<std::string> get() { return {"sequence", "microstep", "step"}; }
};
template <>
struct EnumNames<DropOrder> {
  static std::vector<std::string> get() { return {"position", "score"}; }
};
template <>
struct EnumNames<ExpertPlacement> {
  static std::vector<std::string> get() { return {"contiguous", "interleaved"}; }
};

/// How a field of type T stands in a run file.
template <class T>
struct FieldCodec {
  static constexpr KeyType kType = std::is_same_v<T, bool>          ? KeyType::kBool
                                   : std::is_integral_v<T>          ? KeyType::kWhole
                                   : std::is_floating_point_v<T>    ? KeyType::kReal
                                   : std::is_same_v<T, std::string> ? KeyType::kString
                                                                    : KeyType::kRealList;
  static ConfigValue read(const T& field) {
    if constexpr (kType == KeyType::kWhole) {
      return static_cast<std::int64_t>(field);
    } else if constexpr (kType == KeyType::kRealList) {
      return std::vector<double>(field.begin(), field.end());
    } else {
      return field;
    }
  }
  static void write(T& field, const ConfigValue& value) {
    constexpr auto kIndex = static_cast<std::size_t>(kType);
    if constexpr (kType == KeyType::kRealList) {
      const auto& list = std::get<kIndex>(value);
      std::copy_n(list.begin(), std::min(list.size(), field.size()), field.begin());
    } else {
      field = static_cast<T>(std::get<kIndex>(value));
    }
  }
  static void complete(KeyText& text) {
    if constexpr (kType == KeyType::kWhole) {
      text.max = std::min(text.max, static_cast<double>(std::numeric_limits<T>::max()));
    }
  }
};

template <class E>
  requires std::is_enum_v<E>
struct FieldCodec<E> {
  static constexpr KeyType kType = KeyType::kString;
  static ConfigValue read(const E& field) {
    return EnumNames<E>::get()[static_cast<std::size_t>(field)];
  }
  static void write(E& field, const ConfigValue& value) {
    const auto names = EnumNames<E>::get();
    const auto at = std::find(names.begin(), names.end(), std::get<std::string>(value));
    field = static_cast<E>(at - names.begin());
  }
  static void complete(KeyText& text) { text.choices = EnumNames<E>::get(); }
};

/// A key that stands for a field of RunSpec.
template <class Field>
ConfigKey key(std::string path, Field field, KeyText text) {
  using T = std::remove_cvref_t<decltype(field(std::declval<RunSpec&>()))>;
  FieldCodec<T>::complete(text);
  return {std::move(path),
          FieldCodec<T>::kType,
          std::move(text),
          true,
          [field](const RunSpec& run) { return FieldCodec<T>::read(field(run)); },
          [field](RunSpec& run, const ConfigValue& v) { FieldCodec<T>::write(field(run), v); }};
}

/// A key of a part that is not built yet: only `off` is accepted.
inline ConfigKey later_key(std::string path, ConfigValue off, std::string_view doc) {
  const auto type = static_cast<KeyType>(off.index());
  return {std::move(path),
          type,
          KeyText{.doc = doc},
          false,
          [off](const RunSpec&) { return off; },
          [](RunSpec&, const ConfigValue&) {}};
}

/// The parts of config_keys().
std::vector<ConfigKey> model_keys();  ///< With those of moe_keys().
std::vector<ConfigKey> moe_keys();
std::vector<ConfigKey> parallel_keys();
std::vector<ConfigKey> training_keys();
std::vector<ConfigKey> keeping_keys();

}  // namespace fourfold
