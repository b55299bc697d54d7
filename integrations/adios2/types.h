// The types of ADIOS2, and the form in which each is stored: a column of an Arrow table, or bytes.
#pragma once

#include <adios2.h>

#include <complex>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <type_traits>

namespace offpath::adios {

using ::adios2::DataType;
using ::adios2::Dims;
using ::adios2::ShapeID;

struct TypeFacts {
  DataType type;
  const char* name;    // as ADIOS2 says it
  const char* format;  // of an Arrow column (C data interface); nullptr: none
  std::size_t bytes;   // of a value; 0: a string
};

// Arrow has no complex numbers and no long double: they are stored as pairs, and as opaque values of 16 bytes.
inline constexpr TypeFacts types[] = {
    {DataType::Int8, "int8_t", "c", 1},
    {DataType::Int16, "int16_t", "s", 2},
    {DataType::Int32, "int32_t", "i", 4},
    {DataType::Int64, "int64_t", "l", 8},
    {DataType::UInt8, "uint8_t", "C", 1},
    {DataType::UInt16, "uint16_t", "S", 2},
    {DataType::UInt32, "uint32_t", "I", 4},
    {DataType::UInt64, "uint64_t", "L", 8},
    {DataType::Float, "float", "f", 4},
    {DataType::Double, "double", "g", 8},
    {DataType::LongDouble, "long double", "w:16", sizeof(long double)},
    {DataType::FloatComplex, "float complex", "+w:2f", 8},
    {DataType::DoubleComplex, "double complex", "+w:2g", 16},
    {DataType::String, "string", nullptr, 0},
    {DataType::Char, "char", "c", 1},
};
static_assert(sizeof(long double) == 16, "the format of a column of long doubles");

[[nodiscard]] inline const TypeFacts& facts_of(DataType type) {
  for (const TypeFacts& each : types)
    if (each.type == type) return each;
  throw std::invalid_argument("Offpath: variables of type " + ::adios2::ToString(type) + " cannot be stored");
}

template <class T>
[[nodiscard]] constexpr DataType type_of() {
  if constexpr (std::is_same_v<T, std::string>) return DataType::String;
  if constexpr (std::is_same_v<T, char>) return DataType::Char;
  if constexpr (std::is_same_v<T, float>) return DataType::Float;
  if constexpr (std::is_same_v<T, double>) return DataType::Double;
  if constexpr (std::is_same_v<T, long double>) return DataType::LongDouble;
  if constexpr (std::is_same_v<T, std::complex<float>>) return DataType::FloatComplex;
  if constexpr (std::is_same_v<T, std::complex<double>>) return DataType::DoubleComplex;
  if constexpr (std::is_integral_v<T> && !std::is_same_v<T, char>) {
    constexpr DataType of_signed[] = {DataType::Int8, DataType::Int16, DataType::Int32, DataType::Int64};
    constexpr DataType of_unsigned[] = {DataType::UInt8, DataType::UInt16, DataType::UInt32, DataType::UInt64};
    constexpr std::size_t size = sizeof(T) == 1 ? 0 : sizeof(T) == 2 ? 1 : sizeof(T) == 4 ? 2 : 3;
    return std::is_signed_v<T> ? of_signed[size] : of_unsigned[size];
  }
}

// The number of values of a block. Throws std::length_error where it does not fit.
[[nodiscard]] inline std::size_t elements_of(const Dims& count) {
  std::size_t elements = 1;
  for (const std::size_t each : count)
    if (__builtin_mul_overflow(elements, each, &elements) || elements > SIZE_MAX / 16)
      throw std::length_error("Offpath: a block of shape " + ::adios2::ToString(count) + " is too large");
  return elements;
}

}  // namespace offpath::adios
