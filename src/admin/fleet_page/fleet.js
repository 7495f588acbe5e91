
'use strict';
// Filters while somebody types, and keeps what was typed in the address. The server does the same.
const form = document.forms.view;
const rows = [...document.querySelectorAll('tbody tr[data-state]')];
const texts = rows.map((row) =>
  [0, 3, 6].map((cell) => row.cells[cell].textContent.toLowerCase()));
const filter = () => {
  const asked = new FormData(form);
  const query = asked.get('q').trim().toLowerCase();
  const isOut = (name, value) => Boolean(asked.get(name)) && asked.get(name) !== value;
  let shown = 0;
  rows.forEach((row, index) => {
    row.hidden = isOut('state', row.dataset.state)
      || isOut('reason', row.dataset.reason)
      || (asked.has('changed') && !('changed' in row.dataset))
      || !texts[index].some((text) => text.includes(query));
    shown += row.hidden ? 0 : 1;
  });
  document.getElementById('shown').textContent = shown;
  const none = document.getElementById('none');
  if (none) none.hidden = shown > 0;
  const kept = [...asked].filter(([, value]) => value);
  history.replaceState(null, '', '?' + new URLSearchParams(kept));
};
form.addEventListener('input', filter);
addEventListener('keydown', (event) => {
  const isPlain = !event.ctrlKey && !event.metaKey && !event.altKey;
  if (event.key === '/' && isPlain && !event.target.matches('input, select')) {
    event.preventDefault();
    form.elements.q.focus();
  } else if (event.key === 'Escape' && event.target === form.elements.q) {
    form.elements.q.value = '';
    filter();
  }
});
// Reloads each minute, unless somebody is at work with the page.
setInterval(() => {
  const isBusy = document.hidden || form.elements.pause.checked || !getSelection().isCollapsed
    || document.activeElement?.matches('input, select, button');
  if (!isBusy) location.reload();
}, 60_000);
const taken = document.getElementById('taken');
taken.after(` (${new Date(taken.dateTime).toLocaleTimeString()} here)`);
