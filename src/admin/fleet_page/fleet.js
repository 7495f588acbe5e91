
'use strict';
// Filters while somebody types, where all rows are here, and keeps what was typed behind the #.
const form = document.forms[0];
const rows = [...document.querySelectorAll('tbody tr[data-state]')];
const texts = rows.map((row) =>
  [0, 3, 4].map((cell) => row.cells[cell].textContent.toLowerCase()));
const filter = () => {
  const query = form.q.value.trim().toLowerCase();
  const state = form.state.value;
  let shown = 0;
  rows.forEach((row, index) => {
    row.hidden = Boolean(state && state !== row.dataset.state)
      || !texts[index].some((text) => text.includes(query));
    shown += row.hidden ? 0 : 1;
  });
  document.getElementById('shown').textContent = shown;
};
const recall = () => {
  const kept = new URLSearchParams(location.hash.slice(1));
  form.q.value = kept.get('q') ?? '';
  form.state.value = kept.get('state') ?? '';
  filter();
};
if ('whole' in form.dataset) {
  if (location.hash) recall();
  addEventListener('hashchange', recall);
  form.addEventListener('input', () => {
    filter();
    history.replaceState(null, '', '#' + new URLSearchParams(new FormData(form)));
  });
  form.addEventListener('submit', (event) => event.preventDefault());
}
