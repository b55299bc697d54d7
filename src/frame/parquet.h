// Rows of fixed size, but for text and binary, as a Parquet file: row groups, then the footer. Written without
// libparquet (docs/internals/decisions.md says why): values are stored plainly, one page for each column of a group,
// uncompressed.
//
//   "PAR1" | group: column's page, column's page ... | group ... | footer | u32 footer bytes | "PAR1"
//
//   page   header (Thrift, compact) | repetition levels | definition levels | values
//
// There are no nulls, so definition levels are one run. Lists of a fixed size have repetition levels. The footer has
// the Arrow schema too (ARROW:schema), from which Arrow's readers restore types that Parquet does not have.
//
// Sources: parquet.thrift and Encodings.md of Apache Parquet 2.11, thrift-compact-protocol.md of Apache Thrift.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "frame/schema.h"

namespace offpath::frame {

// The columns as Parquet stores them; the same for all files of a schema.
class ParquetForm {
 public:
  // For columns without nulls, whose rows have a fixed size, or are text or binary. `ordered`: integer columns by which
  // rows are sorted, in this order; the file has their smallest and largest value in each group, so that readers skip
  // groups. Error::unsupported names the column whose type has no form here.
  [[nodiscard]] static Result<std::shared_ptr<const ParquetForm>> make(const Schema& schema,
                                                                       std::vector<std::uint32_t> ordered);

  struct Column {
    std::vector<std::string> path;
    std::vector<std::uint32_t> list_sizes;  // from the outermost; none: one value a row
    std::uint64_t row_values = 1;
    std::uint32_t value_bytes = 0, stored_bytes = 0;  // of a value in a frame, and in the file
    std::uint32_t definition_max = 0;
    std::int32_t physical = 0;
    Type type = Type::null;
  };
  [[nodiscard]] const std::vector<Column>& columns() const noexcept { return columns_; }

 private:
  friend class ParquetFile;
  [[nodiscard]] Status add(const Field& field, Column column);

  std::vector<Column> columns_;
  std::vector<std::uint32_t> ordered_;
  std::vector<std::byte> elements_;  // of the schema, in the footer
  std::size_t elements_count_ = 0;
  std::string arrow_schema_;  // base64 of the IPC message
};

// One file. After a failure it must not be used any more.
class ParquetFile {
 public:
  using Put = std::function<Status(Bytes)>;  // appends to the file

  ParquetFile(std::shared_ptr<const ParquetForm> form, Put put) : form_(std::move(form)), put_(std::move(put)) {}

  // Rows x bytes of a row each, densely. Of text and binary their offsets, of which there is one more, and their bytes.
  struct Values {
    const std::byte *values = nullptr, *text = nullptr;
  };
  [[nodiscard]] Status add_group(std::uint64_t rows, std::span<const Values> columns);
  [[nodiscard]] Status end();
  [[nodiscard]] std::uint64_t bytes() const noexcept { return bytes_; }
  [[nodiscard]] std::uint64_t rows() const noexcept { return rows_; }

 private:
  [[nodiscard]] Status put(Bytes bytes);
  [[nodiscard]] Status begin();
  [[nodiscard]] Status put_values(const ParquetForm::Column& column, std::uint64_t values, const std::byte* from);
  [[nodiscard]] Status put_changed(const ParquetForm::Column& column, std::uint64_t values, const std::byte* from);
  [[nodiscard]] Status put_texts(const ParquetForm::Column& column, std::uint64_t values, const Values& from);

  std::shared_ptr<const ParquetForm> form_;
  Put put_;
  std::uint64_t bytes_ = 0, rows_ = 0;
  std::uint32_t groups_count_ = 0;
  std::vector<std::byte> groups_;  // the footer's list of them
};

}  // namespace offpath::frame
