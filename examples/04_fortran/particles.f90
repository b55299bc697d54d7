! The same in Fortran. x(3, n) is C's x[n][3]: one column of three doubles a row.
program particles
  use, intrinsic :: iso_c_binding
  use offpath
  implicit none
  integer(c_int64_t), parameter :: n = 10000
  integer, parameter :: steps = 5
  integer(c_int32_t), target :: id(n)
  real(c_double), target :: x(3, n)
  type(ofp_session) :: session
  type(ofp_stream) :: stream
  integer(c_int64_t) :: ticket, rows, bytes
  character(len=16) :: row
  integer :: step, i

  call session%connect()  ! OFFPATH_AGENT
  call stream%open(session, "particles-fortran", [ofp_column("id", "i"), ofp_column("x", "+w:3g")], rows_max=n)
  id = [(int(i, c_int32_t), i = 1, int(n))]

  ticket = 0
  do step = 0, steps - 1
    if (step > 0) call stream%wait_pulled(ticket)  ! id and x may change again
    x = real(step, c_double)
    write (row, "(a, i0)") "step", step
    ticket = stream%send([c_loc(id), c_loc(x)], n, row, "rank0")
    ! ... whatever does not write to id and x ...
  end do
  call stream%wait_stored(ticket)

  bytes = session%object_bytes("local:/particles-fortran", "step4", "rank0", 1000000000_c_int64_t, rows)
  print "(a, i0, a, i0, a)", "step4: ", rows, " rows in ", bytes, " bytes of Arrow"
  call stream%close()
  call session%close()
end program
