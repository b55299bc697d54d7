#include "md/files/number_list.h"

#include "md/files/text_lines.h"

namespace md {

std::vector<double> numbers_of(const std::map<std::string, std::string>& given, const std::string& name,
                               const std::string& otherwise) {
  const auto found = given.find(name);
  const std::string& text = found == given.end() ? otherwise : found->second;
  std::vector<double> numbers;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t end = std::min(text.find(',', at), text.size());
    const auto number = number_of(text.substr(at, end - at));
    if (!number || *number <= 0)
      throw BadInput(name + " " + text + ": expected numbers above 0, with commas between them");
    numbers.push_back(*number);
    at = end + 1;
  }
  return numbers;
}

double number_of(const std::map<std::string, std::string>& given, const std::string& name,
                 const std::string& otherwise) {
  const std::vector<double> numbers = numbers_of(given, name, otherwise);
  if (numbers.size() != 1) throw BadInput(name + ": expected one number");
  return numbers[0];
}

}  // namespace md
