! Gauges and exchanges (docs/guides/monitoring.md), in module offpath_exchange. Compile it after offpath.f90.
!
!     type(ofp_gauges) :: gauges
!     call gauges%open(session, "solver", [ofp_gauge("iterations"), ofp_gauge("residual", "f64")])
!     call gauges%set(2, residual)
!
!     type(ofp_exchange) :: exchange
!     type(ofp_view) :: view
!     call exchange%open(session, "load", publish=.true.)
!     call exchange%publish(c_loc(record), c_sizeof(record))            ! of a type with bind(c)
!     view = exchange%view()
!
! Positions in lists count from 1. Members of an exchange have the agents' numbers, which count from 0.
!
! SPDX-License-Identifier: Apache-2.0
module offpath_exchange
  use, intrinsic :: iso_c_binding
  use offpath
  use offpath_calls
  implicit none
  private

  type, public :: ofp_gauge
    character(len=128) :: name = ""         ! rays_traced, or with labels: rays_traced{kind="shadow"}
    character(len=8) :: type = "i64"        ! or "f64", "u64"
    character(len=8) :: kind = "gauge"      ! or "counter"
    character(len=32) :: unit = ""          ! "bytes", "seconds"
    character(len=256) :: description = ""
  end type

  ! Values that the agent reads from this program's memory. Setting one makes no call to the agent.
  type, public :: ofp_gauges
    type(c_ptr) :: handle = c_null_ptr
  contains
    procedure, private :: gauges_set_integer
    procedure, private :: gauges_set_real
    procedure :: open => gauges_open
    generic :: set => gauges_set_integer, gauges_set_real
    procedure :: clear => gauges_clear
    procedure :: close => gauges_close
  end type

  type, public :: ofp_field
    character(len=64) :: name = ""
    character(len=1) :: type = "f"          ! "f" real(c_double), "i" integer(c_int64_t), "u" the same without a sign
    character(len=32) :: unit = ""
  end type

  ! This program's part in an exchange of agents.
  type, public :: ofp_exchange
    type(c_ptr) :: handle = c_null_ptr
  contains
    procedure :: open => exchange_open
    procedure :: info => exchange_info
    procedure :: member => exchange_member
    procedure :: publish => exchange_publish
    procedure :: view => exchange_view
    procedure :: grant => exchange_grant
    procedure :: granted => exchange_granted
    procedure :: close => exchange_close
  end type

  type, bind(c), public :: ofp_exchange_info
    integer(c_int32_t) :: struct_bytes = 0
    integer(c_int32_t) :: members = 0, self = 0, fields = 0, reductions = 0, has_grants = 0
    integer(c_int64_t) :: record_bytes_max = 0, interval_ns = 0, deadline_ns = 0
    integer(c_int64_t) :: grant_total = 0   ! -1: any amount
    character(kind=c_char) :: topology(64) = c_null_char
  end type

  ! The state of an exchange's members after one round.
  type, public :: ofp_view
    type(c_ptr) :: handle = c_null_ptr
  contains
    procedure :: info => view_info
    procedure :: entry => view_entry
    procedure :: figure => view_figure
    procedure :: free => view_free
  end type

  type, bind(c), public :: ofp_view_info
    integer(c_int32_t) :: struct_bytes = 0
    integer(c_int32_t) :: present = 0, expected = 0, whole = 0, leader = 0, is_leader = 0, entries = 0, figures = 0, &
      cut = 0, figure_members = 0
    integer(c_int64_t) :: number = 0, epoch = 0, took_ns = 0, tree = 0
  end type

  type, bind(c), public :: ofp_view_entry
    integer(c_int32_t) :: member = 0, present = 0, has_value = 0, zero = 0
    integer(c_int64_t) :: epoch = 0, age_ns = 0
    type(c_ptr) :: record = c_null_ptr      ! c_f_pointer gives the record; it lives as long as the view
    integer(c_int64_t) :: record_bytes = 0
  end type

  type, bind(c), public :: ofp_view_figure
    integer(c_int64_t) :: count = 0         ! members that had a value
    real(c_double) :: value = 0
    integer(c_int64_t) :: exact = 0
    type(c_ptr) :: top = c_null_ptr, bins = c_null_ptr
    integer(c_int32_t) :: top_count = 0, bins_count = 0
  end type

  type, bind(c) :: c_gauge
    type(c_ptr) :: name, type, kind, unit, description
  end type

  type, bind(c) :: c_field
    type(c_ptr) :: name
    character(kind=c_char) :: type
    type(c_ptr) :: unit
  end type

  type, bind(c) :: c_exchange_options
    integer(c_int32_t) :: struct_bytes = 0, publish = 0
    type(c_ptr) :: fields = c_null_ptr
    integer(c_int32_t) :: fields_count = 0, zero = 0
    integer(c_int64_t) :: record_bytes_max = 0, view_bytes_max = 0
  end type

  interface
    integer(c_int) function c_gauges_open(channel, name, list, count, gauges, error) bind(c, name="ofp_gauges_open")
      import :: c_int, c_int32_t, c_ptr, c_char, c_gauge, ofp_error
      type(c_ptr), value :: channel
      character(kind=c_char), intent(in) :: name(*)
      type(c_gauge), intent(in) :: list(*)
      integer(c_int32_t), value :: count
      type(c_ptr), intent(out) :: gauges
      type(ofp_error), intent(inout) :: error
    end function
    subroutine c_gauge_clear(gauges, place) bind(c, name="ofp_gauge_clear")
      import :: c_ptr, c_int32_t
      type(c_ptr), value :: gauges
      integer(c_int32_t), value :: place
    end subroutine
    integer(c_int) function c_exchange_open(channel, name, options, exchange, error) bind(c, name="ofp_exchange_open")
      import :: c_int, c_ptr, c_char, c_exchange_options, ofp_error
      type(c_ptr), value :: channel
      character(kind=c_char), intent(in) :: name(*)
      type(c_exchange_options), intent(in) :: options
      type(c_ptr), intent(out) :: exchange
      type(ofp_error), intent(inout) :: error
    end function
    integer(c_int) function c_exchange_info_get(exchange, info, error) bind(c, name="ofp_exchange_info_get")
      import :: c_int, c_ptr, ofp_exchange_info, ofp_error
      type(c_ptr), value :: exchange
      type(ofp_exchange_info), intent(inout) :: info
      type(ofp_error), intent(inout) :: error
    end function
    integer(c_int) function c_exchange_publish(exchange, record, bytes, error) bind(c, name="ofp_exchange_publish")
      import :: c_int, c_int64_t, c_ptr, ofp_error
      type(c_ptr), value :: exchange, record
      integer(c_int64_t), value :: bytes
      type(ofp_error), intent(inout) :: error
    end function
    integer(c_int) function c_exchange_grant(exchange, members, amounts, count, may_grant, error) &
        bind(c, name="ofp_exchange_grant")
      import :: c_int, c_int32_t, c_int64_t, c_ptr, ofp_error
      type(c_ptr), value :: exchange
      integer(c_int32_t), intent(in) :: members(*)
      integer(c_int64_t), intent(in) :: amounts(*)
      integer(c_int32_t), value :: count
      integer(c_int32_t), intent(out) :: may_grant
      type(ofp_error), intent(inout) :: error
    end function
    integer(c_int) function c_exchange_granted(exchange, amount, left_ns, error) bind(c, name="ofp_exchange_granted")
      import :: c_int, c_int64_t, c_ptr, ofp_error
      type(c_ptr), value :: exchange
      integer(c_int64_t), intent(out) :: amount, left_ns
      type(ofp_error), intent(inout) :: error
    end function
    integer(c_int) function c_view_info_get(view, info, error) bind(c, name="ofp_view_info_get")
      import :: c_int, c_ptr, ofp_view_info, ofp_error
      type(c_ptr), value :: view
      type(ofp_view_info), intent(inout) :: info
      type(ofp_error), intent(inout) :: error
    end function
    integer(c_int) function c_view_entry_get(view, place, entry) bind(c, name="ofp_view_entry_get")
      import :: c_int, c_int32_t, c_ptr, ofp_view_entry
      type(c_ptr), value :: view
      integer(c_int32_t), value :: place
      type(ofp_view_entry), intent(inout) :: entry
    end function
    integer(c_int) function c_view_figure_get(view, place, figure) bind(c, name="ofp_view_figure_get")
      import :: c_int, c_int32_t, c_ptr, ofp_view_figure
      type(c_ptr), value :: view
      integer(c_int32_t), value :: place
      type(ofp_view_figure), intent(inout) :: figure
    end function
    integer(c_size_t) function c_strlen(text) bind(c, name="strlen")
      import :: c_size_t, c_ptr
      type(c_ptr), value :: text
    end function
  end interface
  procedure(c_finds), bind(c, name="ofp_gauge_slot") :: c_gauge_slot
  procedure(c_ends), bind(c, name="ofp_gauges_close") :: c_gauges_close
  procedure(c_finds), bind(c, name="ofp_exchange_member") :: c_exchange_member
  procedure(c_makes), bind(c, name="ofp_exchange_view") :: c_exchange_view
  procedure(c_ends), bind(c, name="ofp_exchange_close") :: c_exchange_close
  procedure(c_ends), bind(c, name="ofp_view_free") :: c_view_free

contains

  ! For calls that return a code alone.
  type(ofp_error) function error_of(text) result(error)
    character(len=*), intent(in) :: text
    integer :: i
    do i = 1, len(text)
      error%message(i) = text(i:i)
    end do
  end function

  ! ---- gauges

  subroutine gauges_open(gauges, session, name, list, stat)
    class(ofp_gauges), intent(inout) :: gauges
    type(ofp_session), intent(in) :: session
    character(len=*), intent(in) :: name
    type(ofp_gauge), intent(in) :: list(:)
    integer, intent(out), optional :: stat
    integer, parameter :: longest = 257
    character(kind=c_char, len=longest), target :: texts(5, size(list))
    type(c_gauge) :: given(size(list))
    type(ofp_error) :: error
    integer :: i
    do i = 1, size(list)
      texts(1, i) = terminated(list(i)%name)
      texts(2, i) = terminated(list(i)%type)
      texts(3, i) = terminated(list(i)%kind)
      texts(4, i) = terminated(list(i)%unit)
      texts(5, i) = terminated(list(i)%description)
      given(i) = c_gauge(c_loc(texts(1, i)), c_loc(texts(2, i)), c_loc(texts(3, i)), c_loc(texts(4, i)), &
                         c_loc(texts(5, i)))
    end do
    call settle(c_gauges_open(session%handle, terminated(name), given, size(list, kind=c_int32_t), gauges%handle, &
                              error), error, stat)
  end subroutine

  ! For gauges of the types i64 and u64.
  subroutine gauges_set_integer(gauges, place, value)
    class(ofp_gauges), intent(in) :: gauges
    integer, intent(in) :: place
    integer(c_int64_t), intent(in) :: value
    integer(c_int64_t), pointer, volatile :: slot
    type(c_ptr) :: where
    where = c_gauge_slot(gauges%handle, int(place - 1, c_int32_t))
    if (.not. c_associated(where)) return
    call c_f_pointer(where, slot)
    slot = value
  end subroutine

  ! For gauges of the type f64.
  subroutine gauges_set_real(gauges, place, value)
    class(ofp_gauges), intent(in) :: gauges
    integer, intent(in) :: place
    real(c_double), intent(in) :: value
    call gauges%gauges_set_integer(place, transfer(value, 0_c_int64_t))
  end subroutine

  ! It has no value until it is set again.
  subroutine gauges_clear(gauges, place)
    class(ofp_gauges), intent(in) :: gauges
    integer, intent(in) :: place
    call c_gauge_clear(gauges%handle, int(place - 1, c_int32_t))
  end subroutine

  subroutine gauges_close(gauges)
    class(ofp_gauges), intent(inout) :: gauges
    call c_gauges_close(gauges%handle)
    gauges%handle = c_null_ptr
  end subroutine

  ! ---- exchange

  ! `fields`: those of a record; absent: as configured. `publish`: this program publishes its host's records.
  subroutine exchange_open(exchange, session, name, publish, fields, stat)
    class(ofp_exchange), intent(inout) :: exchange
    type(ofp_session), intent(in) :: session
    character(len=*), intent(in) :: name
    logical, intent(in), optional :: publish
    type(ofp_field), intent(in), optional :: fields(:)
    integer, intent(out), optional :: stat
    character(kind=c_char, len=65), allocatable, target :: names(:), units(:)
    type(c_field), allocatable, target :: given(:)
    type(c_exchange_options) :: options
    type(ofp_error) :: error
    integer :: i
    options%struct_bytes = int(c_sizeof(options), c_int32_t)
    if (present(publish)) then
      if (publish) options%publish = 1
    end if
    if (present(fields)) then
      if (size(fields) > 0) then
        allocate (names(size(fields)), units(size(fields)), given(size(fields)))
        do i = 1, size(fields)
          names(i) = terminated(fields(i)%name)
          units(i) = terminated(fields(i)%unit)
          given(i)%name = c_loc(names(i))
          given(i)%type = fields(i)%type
          given(i)%unit = c_null_ptr
          if (len_trim(fields(i)%unit) > 0) given(i)%unit = c_loc(units(i))
        end do
        options%fields = c_loc(given)
        options%fields_count = size(fields, kind=c_int32_t)
      end if
    end if
    call settle(c_exchange_open(session%handle, terminated(name), options, exchange%handle, error), error, stat)
  end subroutine

  type(ofp_exchange_info) function exchange_info(exchange, stat) result(info)
    class(ofp_exchange), intent(in) :: exchange
    integer, intent(out), optional :: stat
    type(ofp_error) :: error
    info%struct_bytes = int(c_sizeof(info), c_int32_t)
    call settle(c_exchange_info_get(exchange%handle, info, error), error, stat)
  end function

  ! The name of this member; "" beyond the last one.
  function exchange_member(exchange, member) result(name)
    class(ofp_exchange), intent(in) :: exchange
    integer(c_int32_t), intent(in) :: member
    character(len=:), allocatable :: name
    character(kind=c_char), pointer :: letters(:)
    type(c_ptr) :: where
    integer :: i
    name = ""
    where = c_exchange_member(exchange%handle, member)
    if (.not. c_associated(where)) return
    call c_f_pointer(where, letters, [c_strlen(where)])
    do i = 1, size(letters)
      name = name // letters(i)
    end do
  end function

  ! `record`: c_loc of a record, for instance of a derived type with bind(c). Copied; never waits.
  subroutine exchange_publish(exchange, record, bytes, stat)
    class(ofp_exchange), intent(in) :: exchange
    type(c_ptr), intent(in) :: record
    integer(c_int64_t), intent(in) :: bytes
    integer, intent(out), optional :: stat
    type(ofp_error) :: error
    call settle(c_exchange_publish(exchange%handle, record, bytes, error), error, stat)
  end subroutine

  ! The newest view that this program has not received, by `wait_ns` from now. The caller frees it.
  type(ofp_view) function exchange_view(exchange, wait_ns, stat) result(view)
    class(ofp_exchange), intent(in) :: exchange
    integer(c_int64_t), intent(in), optional :: wait_ns
    integer, intent(out), optional :: stat
    type(ofp_error) :: error
    call settle(c_exchange_view(exchange%handle, wait_or_forever(wait_ns), view%handle, error), error, stat)
  end function

  ! Requests amounts for these members. `may_grant`: whether this program's agent leads, and grants them now.
  subroutine exchange_grant(exchange, members, amounts, may_grant, stat)
    class(ofp_exchange), intent(in) :: exchange
    integer(c_int32_t), intent(in) :: members(:)
    integer(c_int64_t), intent(in) :: amounts(size(members))
    logical, intent(out), optional :: may_grant
    integer, intent(out), optional :: stat
    integer(c_int32_t) :: may
    type(ofp_error) :: error
    may = 0
    call settle(c_exchange_grant(exchange%handle, members, amounts, size(members, kind=c_int32_t), may, error), error, &
                stat)
    if (present(may_grant)) may_grant = may /= 0
  end subroutine

  ! The amount granted to this program's agent; 0: none. `left_ns`: how long it may still be used.
  integer(c_int64_t) function exchange_granted(exchange, left_ns, stat) result(amount)
    class(ofp_exchange), intent(in) :: exchange
    integer(c_int64_t), intent(out), optional :: left_ns
    integer, intent(out), optional :: stat
    integer(c_int64_t) :: left
    type(ofp_error) :: error
    amount = 0
    left = 0
    call settle(c_exchange_granted(exchange%handle, amount, left, error), error, stat)
    if (present(left_ns)) left_ns = left
  end function

  ! Views stay valid.
  subroutine exchange_close(exchange)
    class(ofp_exchange), intent(inout) :: exchange
    call c_exchange_close(exchange%handle)
    exchange%handle = c_null_ptr
  end subroutine

  type(ofp_view_info) function view_info(view, stat) result(info)
    class(ofp_view), intent(in) :: view
    integer, intent(out), optional :: stat
    type(ofp_error) :: error
    info%struct_bytes = int(c_sizeof(info), c_int32_t)
    call settle(c_view_info_get(view%handle, info, error), error, stat)
  end function

  ! Entries and figures beyond the last one: `stat` is not OFP_OK, or the program stops.
  type(ofp_view_entry) function view_entry(view, place, stat) result(entry)
    class(ofp_view), intent(in) :: view
    integer, intent(in) :: place
    integer, intent(out), optional :: stat
    call settle(c_view_entry_get(view%handle, int(place - 1, c_int32_t), entry), &
                error_of("the view has no such entry"), stat)
  end function

  type(ofp_view_figure) function view_figure(view, place, stat) result(figure)
    class(ofp_view), intent(in) :: view
    integer, intent(in) :: place
    integer, intent(out), optional :: stat
    call settle(c_view_figure_get(view%handle, int(place - 1, c_int32_t), figure), &
                error_of("the view has no such figure"), stat)
  end function

  subroutine view_free(view)
    class(ofp_view), intent(inout) :: view
    call c_view_free(view%handle)
    view%handle = c_null_ptr
  end subroutine

end module offpath_exchange
