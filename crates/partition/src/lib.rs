//! Process grids and block plans of distributed sparse products, as plain data.
