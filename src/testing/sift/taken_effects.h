// The effects of one kind, out of those that a state machine has given.
#pragma once

#include <utility>
#include <variant>
#include <vector>

namespace offpath::sift {

// In their order; `effects` keeps the others.
template <class Kind, class Effect>
[[nodiscard]] std::vector<Kind> taken_effects(std::vector<Effect>& effects) {
  std::vector<Kind> found;
  for (Effect& effect : effects)
    if (auto* kind = std::get_if<Kind>(&effect)) found.push_back(std::move(*kind));
  std::erase_if(effects, [](const Effect& effect) { return std::holds_alternative<Kind>(effect); });
  return found;
}

}  // namespace offpath::sift
